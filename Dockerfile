# The image: one static binary and nothing else. `make image` builds it, and its SBOM from the stage of that name.

FROM rust:1.95-slim-bookworm AS build
# The C compiler is for the TLS library's assembly.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends musl-tools \
    && rm -rf /var/lib/apt/lists/* \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
# Apart from the sources, so that a change of those does not install them again.
COPY scripts/install-auditors scripts/
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    scripts/install-auditors /usr/local
COPY . .
# The address of the site of the documents, for links in the output of commands. Empty is none.
ARG DOCS_URL=
# The same steps as `make static`, which checks them without a daemon.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    scripts/build-static --target "$(uname -m)-unknown-linux-musl" --out /out/cilium-node-ipam \
    && scripts/sbom /out/cilium-node-ipam.cdx.json

FROM scratch AS sbom
COPY --from=build /out/cilium-node-ipam.cdx.json /

FROM scratch
ARG VERSION=
LABEL org.opencontainers.image.title="cilium-node-ipam" \
      org.opencontainers.image.description="Gives the nodes of a Cilium cluster (ipam: crd) their pod addresses, from pools chosen by node labels" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY LICENSE /
COPY --from=build /out/cilium-node-ipam /
# A number, because kubelet can't look up a name to see that it is not root.
USER 65532:65532
ENTRYPOINT ["/cilium-node-ipam"]
CMD ["run"]
