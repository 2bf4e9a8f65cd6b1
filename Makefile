# Everything that this project does is one of these. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One that is installed already serves as well.
CARGO_DENY := $(or $(shell command -v cargo-deny),build/tools/bin/cargo-deny)
KUBERNETES_VERSION := v1.35.4
CARGO_DENY_VERSION := 0.20
# Each test on a real API server keeps about one core busy.
TEST_THREADS ?= 2
export CARGO_TERM_COLOR ?= auto

.PHONY: help
help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: format clippy unit ## What every commit must pass, in minutes: format, clippy, unit and property tests

.PHONY: test
test: check deny tools test-go test-it ## Everything that must hold, on a real API server and with Cilium's own agent

.PHONY: demo
demo: tools ## Show the product at work on a real API server. ONCE=1 checks it and ends; NODES=300 sets the size
	cargo build --release
	cargo run --release --example demo -- $(if $(ONCE),--once) $(if $(NODES),--nodes $(NODES))

.PHONY: format
format:
	cargo fmt --check

.PHONY: clippy
clippy:
	cargo clippy --locked --all-targets -- --deny warnings

.PHONY: unit
unit:
	cargo test --locked --lib --bins

.PHONY: test-it
test-it: tools
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --test it

.PHONY: test-go
test-go: tools ## The tests of the test control plane and of the agents
	cd tests/controlplane && gofmt -l . | (! grep .) && go vet ./... && go test ./oracle
	cd tests/controlplane && CONTROLPLANE_BIN=$(CURDIR)/build/bin/controlplane go test -count=1 ./integration
	cd tests/agent/v1.20 && gofmt -l . | (! grep .) && go vet ./...
	cd tests/agent/v1.20 && CONTROLPLANE_BIN=$(CURDIR)/build/bin/controlplane go test -count=1 ./...

.PHONY: tools
tools: build/bin/controlplane build/bin/agent-1.20 ## Build the real control plane and the real agents that the tests run against

.PHONY: build/bin/controlplane
build/bin/controlplane:
	@echo 'building kube-apiserver and etcd $(KUBERNETES_VERSION) from their Go modules; the first time takes some minutes'
	cd tests/controlplane && go build -v -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' -o ../../build/bin/controlplane .

.PHONY: build/bin/agent-1.20
build/bin/agent-1.20:
	@echo "building the agent of Cilium 1.20 from its Go module; the first time takes some minutes"
	cd tests/agent/v1.20 && go build -v -o ../../../build/bin/agent-1.20 .

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, bans and sources of all dependencies, and advisories where they can be had
	$(CARGO_DENY) --locked check licenses bans sources
	@if $(CARGO_DENY) fetch db >/dev/null 2>&1; then $(CARGO_DENY) --locked check advisories; \
	else echo 'advisories: NOT CHECKED, because the advisory database cannot be reached from here'; fi

build/tools/bin/cargo-deny:
	@echo 'installing cargo-deny $(CARGO_DENY_VERSION); once, some minutes'
	cargo install cargo-deny --version '^$(CARGO_DENY_VERSION)' --locked --root build/tools

.PHONY: generate
generate: ## Write crds/ anew from the types
	cargo run --locked --quiet -- crd --out crds

.PHONY: bench
bench: ## Measure the core; docs/performance.md says what the numbers mean
	cargo bench --locked

.PHONY: clean
clean: ## Remove everything that was built
	cargo clean
	rm -rf build
