# Every task of this project is a target here. `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A cargo-deny that is installed already is used.
CARGO_DENY := $(or $(shell command -v cargo-deny),build/tools/bin/cargo-deny)
KUBERNETES_VERSION := v1.35.4
# Which other versions of Kubernetes the tests run with: tests/data/versions has them all.
VERSIONS := tests/data/versions
KUBERNETES := $(shell awk -F ' *[|] *' '$$4 == "make test-kubernetes" { sub(/[.][0-9]*$$/, "", $$1); print $$1 }' $(VERSIONS))
CARGO_DENY_VERSION := 0.20
# An mdbook that is installed already is used.
MDBOOK := $(or $(shell command -v mdbook),build/tools/bin/mdbook)
MDBOOK_VERSION := 0.5.4
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# The releases of Cilium whose agents are tested, from the oldest to the newest.
AGENTS := 1.14 1.17 1.20
# The releases of Cilium whose BGP control plane is tested.
BGP := 1.17 1.19
# The releases of Cilium whose agents run with their datapath, and the folders in its module of the programs for that.
DATAPATHS := 1.17 1.20
DATAPATH_PROGRAMS := cilium-agent=daemon cilium-cni=plugins/cilium-cni cilium-health-responder=cilium-health/responder
# The release of Cilium whose operator allocates beside the controller in tests. It has its allocators with this tag alone.
OPERATOR := 1.20
OPERATOR_TAG := -tags ipam_provider_operator
# Tests on a real API server mostly wait: for periods of agents, and for one another. Six at a time are what two cores carry.
TEST_THREADS ?= 6
# As many control planes run at a time. To collect their garbage takes a seventh of the CPU time of these tests, and with
# this setting of Go's runtime, which all that they start inherits, hardly any. It costs memory.
TEST_GOGC ?= 400
# The releases of Helm that install the chart in tests: its two majors, each of a Go module of its own.
HELMS := 3 4
# What `make test-it` runs with beside the tools.
BESIDE_TOOLS := $(HELMS:%=build/bin/helm-%) build/bin/prometheus build/bin/gobgpd frr-k8s
# The tests of agents in modes other than crd. `make test-agents` runs them too.
OTHER_MODES := '^Test(Pools|Static)'
# The tests in tests/it that need no server, by parts of their names. `make check` runs them, `make test-it` the others.
SERVERLESS := cli_import:: cli_validate:: decisions:: docs:: events:: example_cluster:: gobgp_api:: install::alerts:: install::chart:: install::dashboard:: install::image:: layout:: logged:: map::pages mutants:: screens:: simulation:: words::
# Those with the agent of a release between the oldest and the newest. `make test-agents` runs them, and no other target.
BETWEEN := of_1_17
# Those with real routers, and those of routes that take long. `make test-routes` runs all, and `make test` the others.
ON_ROUTERS := routers::
AT_LENGTH := at_length::
# Those with Cilium's datapath. `make test-datapath` runs them, and no other target.
WITH_DATAPATH := datapath::
# Those with the program of another commit. `make test-upgrade` runs them, and no other target.
WITH_FORMER := install::upgrade::
# Those of programs beside the server and the controller, and the tutorial, whose outputs name the version. Another version
# of Kubernetes changes nothing in what they judge.
OF_ONE_VERSION := tutorial:: alerting:: scraping:: install:: gobgp:: $(ON_ROUTERS)
# Kubernetes 1.36 refuses each object of the definition that frr-k8s had before 0.0.25, which the tests have: its AS
# numbers are int32, and their maximum is larger.
NOT_WITH_1.36 := routes::
# Those that open the map in Chromium. `make test-map` runs them.
IN_A_BROWSER := in_a_browser
export CARGO_TERM_COLOR ?= auto
# Properties draw their values from this seed, as the simulation does from its own, so a commit can only fail for its own
# change. `make soak` draws from others.
export PROPTEST_RNG_SEED ?= 0

# For the targets that talk to a cluster: the one that kubectl's context names.
KUBECTL ?= kubectl
# What builds images; podman and buildah take the same arguments.
CONTAINER ?= docker
# The one source of what is installed.
CHART := manifests/chart/cilium-node-ipam
# How long an upgrade may take until the new controller is ready.
TIMEOUT ?= 180s

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: format clippy doc unit ## What every commit must pass, in minutes: format, clippy, rustdoc, and the tests that need no server

.PHONY: test
test: check deny docs tools $(BESIDE_TOOLS) test-alerts ## Everything that must hold, on a real API server and with Cilium's own agent
	@# Both suites mostly wait, so they run side by side.
	$(MAKE) --jobs=2 --output-sync=line SIDE_BY_SIDE=1 test-it test-go static

ifdef SIDE_BY_SIDE
# Cargo locks its folder while it builds, and test-it has to begin meanwhile.
static: test-go
else
TOOLS := tools
endif

# What the demo and the playground run, and no more: kubectl only where a mode of Cilium, or a person, needs it.
SHOWN := controlplane agent-$(lastword $(AGENTS))

# Builds an example, the program and these programs of build/bin, two at a time.
build-side-by-side = @$(MAKE) --no-print-directory --jobs=2 logged-example-$(1) $(addprefix logged-,$(2))

# Of these two, make takes the one that leaves less of a name.
logged-example-%: FORCE
	@scripts/logged example-$* cargo build --locked --color never --profile demo --bins --example $*
logged-%: FORCE
	@scripts/logged $* $(MAKE) --no-print-directory build/bin/$*

.PHONY: FORCE
FORCE:

.PHONY: demo
demo: ## Show the product at work on a real API server. ONCE=1 checks it and ends; NODES=300 sets the size, MODE=multi-pool Cilium's mode
	$(call build-side-by-side,demo,$(SHOWN) $(if $(MODE),kubectl))
	cargo run --locked --quiet --profile demo --example demo -- $(if $(ONCE),--once) $(if $(NODES),--nodes $(NODES)) $(if $(MODE),--mode $(MODE))

.PHONY: playground
playground: ## Run a real API server with the controller, for a person with kubectl: docs/tutorial.md
	$(call build-side-by-side,playground,$(SHOWN) kubectl)
	cargo run --locked --quiet --profile demo --example playground

.PHONY: format
format:
	cargo fmt --check

.PHONY: clippy
clippy:
	cargo clippy --locked --all-targets -- --deny warnings

.PHONY: doc
doc: ## Write the documentation of the code, private items included, to target/doc; a broken link fails
	@# Links to private items resolve, because those are documented too.
	RUSTDOCFLAGS='--deny warnings --allow rustdoc::private_intra_doc_links' \
		cargo doc --locked --no-deps --document-private-items

.PHONY: docs
docs: $(MDBOOK) ## Build the site of the documents, with a search that works offline: build/book/site/index.html
	scripts/book $(MDBOOK)

build/tools/bin/mdbook:
	@echo 'installing mdbook $(MDBOOK_VERSION); once, some minutes'
	cargo install mdbook --version '$(MDBOOK_VERSION)' --no-default-features --features search --locked --root build/tools

.PHONY: unit
unit:
	cargo test --locked --lib --bins
	cargo test --locked --doc
	cargo test --locked --test it -- $(SERVERLESS)

.PHONY: fuzz
fuzz: ## Fuzz the readers of files, objects and answers, with coverage, for MINUTES=10 in all. TARGETS=selector runs some. It needs a C++ compiler (Debian: g++)
	scripts/fuzz $(or $(MINUTES),10) $(TARGETS)

.PHONY: soak
soak: ## Run every search of the simulation and every property for long: SEEDS=5000 from a random seed, which is printed, or from SEED=
	@first='$(SEED)'; first=$${first:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "make soak SEEDS=$(or $(SEEDS),5000) SEED=$$first"; \
	SIM_SEED=$$first SIM_CASES=$(or $(SEEDS),5000) \
		cargo test --locked --profile simulation --test simulation -- --skip found::; \
	PROPTEST_RNG_SEED=$$first PROPTEST_CASES=$$((20 * $(or $(SEEDS),5000))) \
		cargo test --locked --profile simulation --lib

.PHONY: mutants
mutants: ## Take each rule out of a copy of the tree in turn, and see random scripts find that. MUTANT=overlap for one rule
	scripts/mutants $(MUTANT)

.PHONY: test-it
test-it: $(TOOLS) $(if $(TOOLS),$(BESIDE_TOOLS))
	@# Without FRR and BIRD, and without a way to install them, the script says why, and that those tests are skipped.
	routers=; scripts/need-routers || routers='--skip $(ON_ROUTERS)'; \
	GOGC=$(TEST_GOGC) RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --test it -- $$routers $(addprefix --skip ,$(SERVERLESS) $(BETWEEN) $(AT_LENGTH) $(WITH_DATAPATH) $(WITH_FORMER) $(IN_A_BROWSER))

.PHONY: test-go
test-go: $(TOOLS) ## The tests of the test control plane, and what is known of Cilium on its oldest and its newest agent
	cd tests/controlplane && gofmt -l . | (! grep .) && go vet ./... && go test ./oracle
	cd tests/controlplane && CONTROLPLANE_BIN=$(CURDIR)/build/bin/controlplane go test -count=1 ./integration
	cd tests/agent/rig && gofmt -l . | (! grep .) && go vet ./...
	cd tests/agent/suite && gofmt -l . | (! grep .) && go vet ./...
	cd tests/operator/v$(OPERATOR) && gofmt -l . | (! grep .) && go vet $(OPERATOR_TAG) ./...
	$(call test-agent,$(firstword $(AGENTS)),-skip $(OTHER_MODES))
	$(call test-agent,$(lastword $(AGENTS)),-skip $(OTHER_MODES))

.PHONY: test-agents
test-agents: tools $(AGENTS:%=build/bin/agent-%) ## What is known of Cilium, on the agent of every release that is tested
	$(foreach release,$(AGENTS),$(call test-agent,$(release)))
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --test it -- $(BETWEEN)

# An agent mostly waits, so many of them run side by side.
define test-agent
cd tests/agent/v$(1) && gofmt -l . | (! grep .) && go vet ./...
cd tests/agent/suite && AGENT=$(1) CONTROLPLANE_BIN=$(CURDIR)/build/bin/controlplane go test -count=1 -parallel 8 -timeout 20m $(2) .

endef

.PHONY: test-kubernetes
test-kubernetes: tools $(KUBERNETES:%=build/bin/controlplane-%) ## The tests that use a server, on each other version of Kubernetes that is supported. KUBERNETES=1.33 for one, WITH=joining:: for some
	cargo build --locked
	$(foreach version,$(KUBERNETES),$(call test-with,$(version),$(or $(WITH),$(addprefix --skip ,$(SERVERLESS) $(BETWEEN) $(AT_LENGTH) $(WITH_DATAPATH) $(WITH_FORMER) $(IN_A_BROWSER) $(OF_ONE_VERSION) $(NOT_WITH_$(version))))))

# The support of the tests refuses a control plane that is missing, and one of another version.
define test-with
NODEIPAM_KUBERNETES=$(1) GOGC=$(TEST_GOGC) RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked --test it -- $(2)

endef

.PHONY: $(KUBERNETES:%=build/bin/controlplane-%)
$(KUBERNETES:%=build/bin/controlplane-%): build/bin/controlplane-%:
	@echo 'building kube-apiserver and etcd of Kubernetes $* from their Go modules; the first time takes some minutes'
	@# The sources are those of the folder, and the versions those of the module of this version.
	cd tests/controlplane && go build -v -modfile=v$*/go.mod \
		-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$(go list -modfile=v$*/go.mod -m -f '{{.Version}}' k8s.io/kubernetes)" \
		-o ../../build/bin/controlplane-$* .

.PHONY: test-alerts
test-alerts: build/bin/promtool ## Evaluate the alerts on series: each stays silent, fires, and resolves
	build/bin/promtool check rules --lint=all --lint-fatal manifests/alerts.yaml
	build/bin/promtool test rules tests/prometheus/alerts.test.yaml

.PHONY: test-bgp
test-bgp: build/bin/controlplane build/bin/bgp-peer build/bin/agent-1.17 $(BGP:%=build/bin/bgp-%) ## What Cilium announces with BGP of what a controller writes, in every release that is tested
	cargo build --locked
	$(foreach module,rig peer suite,$(call vet-bgp,$(module)))
	$(foreach release,$(BGP),$(call test-bgp-of,$(release)))

.PHONY: test-routes
test-routes: tools frr-k8s build/bin/gobgpd ## Routes by FRRConfigurations and by GoBGP in real routers. It needs FRR and BIRD, and installs them where it can (Debian: frr frr-pythontools bird2)
	cd tests/routes && gofmt -l . | (! grep .) && go vet ./...
	scripts/need-routers
	RUST_TEST_THREADS=2 cargo test --locked --test it -- routes:: gobgp:: $(ON_ROUTERS)

.PHONY: test-datapath
test-datapath: build/bin/controlplane build/bin/kubectl build/bin/gobgpd $(DATAPATHS:%=build/bin/cilium-%) ## Packets through Cilium's real datapath while blocks come and go. It needs root, and installs what it needs (Debian: clang-19 iptables ipset iputils-ping iproute2 bird2 bpftool)
	@# Without root or these packages, the script says why nothing runs.
	scripts/need-datapath
	RUST_TEST_THREADS=2 cargo test --locked --test it -- --nocapture $(WITH_DATAPATH)

.PHONY: test-upgrade
test-upgrade: build/bin/controlplane build/bin/kubectl $(HELMS:%=build/bin/helm-%) ## Upgrade from another version, roll back, and upgrade again, with 60 nodes. FROM=TAG or COMMIT; the newest tag without it
	former=$$(scripts/former-version '$(FROM)'); \
	NODEIPAM_FORMER="$$former" RUST_TEST_THREADS=1 cargo test --locked --test it -- --nocapture $(WITH_FORMER)

.PHONY: test-krew
test-krew: build/bin/validate-krew-manifest build/bin/kubectl-krew build/bin/kubectl ## The plugin for krew: its own validator accepts the manifest, and krew installs it
	cargo build --locked
	scripts/krew https://example.com https://example.com/releases amd64=$(or $(CARGO_TARGET_DIR),target)/debug/cilium-node-ipam
	build/bin/validate-krew-manifest -manifest build/krew/nodeipam.yaml -skip-install
	@# Without the network: from the archive.
	rm -rf build/krew/root
	export KREW_ROOT="$(CURDIR)/build/krew/root" KREW_OS=linux KREW_ARCH=amd64 && \
		build/bin/kubectl-krew install --manifest=build/krew/nodeipam.yaml --archive=$$(echo build/krew/*-amd64.tar.gz) && \
		PATH="$$KREW_ROOT/bin:$$PATH" build/bin/kubectl nodeipam --version

.PHONY: build/bin/validate-krew-manifest build/bin/kubectl-krew
build/bin/validate-krew-manifest build/bin/kubectl-krew: build/bin/%:
	cd tests/krew && go build -ldflags '-s -w' -o ../../$@ sigs.k8s.io/krew/cmd/$(if $(findstring kubectl,$*),krew,$*)

.PHONY: test-map
test-map: ## The map in Chromium: clicks, keys and search. It needs chromedriver (Debian: chromium chromium-driver). MAP_FOLDER=DIR keeps pictures, and UPDATE_DOCS=1 writes that of docs/commands/map.md
	@command -v chromedriver >/dev/null || { echo 'chromedriver is missing: apt-get install chromium chromium-driver' >&2; exit 1; }
	cargo test --locked --test it -- $(IN_A_BROWSER)

define vet-bgp
cd tests/bgp/$(1) && gofmt -l . | (! grep .) && go vet ./...

endef

define test-bgp-of
$(call vet-bgp,v$(1))
cd tests/bgp/suite && BGP=$(1) CONTROLPLANE_BIN=$(CURDIR)/build/bin/controlplane \
	CONTROLLER_BIN=$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)/debug/cilium-node-ipam \
	go test -count=1 -parallel 4 -timeout 10m .

endef

.PHONY: tools
tools: build/bin/controlplane build/bin/kubectl build/bin/etcdctl build/bin/etcdutl build/bin/agent-$(firstword $(AGENTS)) build/bin/agent-$(lastword $(AGENTS)) build/bin/operator-$(OPERATOR) ## Build the real control plane, its tools, agents and operator that the tests run with

.PHONY: build/bin/controlplane
build/bin/controlplane:
	@echo 'building kube-apiserver and etcd $(KUBERNETES_VERSION) from their Go modules; the first time takes some minutes'
	@# The servers of KUBEBUILDER_ASSETS are used where it is set, so none are built.
	cd tests/controlplane && go build -v $(if $(KUBEBUILDER_ASSETS),-tags external_servers) -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' -o ../../build/bin/controlplane .

.PHONY: build/bin/kubectl
build/bin/kubectl:
	@echo 'building kubectl $(KUBERNETES_VERSION) from its Go module'
	cd tests/controlplane && go build -v -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)' -o ../../build/bin/kubectl k8s.io/kubernetes/cmd/kubectl

.PHONY: build/bin/etcdctl build/bin/etcdutl
build/bin/etcdctl build/bin/etcdutl: build/bin/%:
	@echo 'building $* from its Go module'
	cd tests/controlplane && go build -v -ldflags '-s -w' -o ../../$@ go.etcd.io/etcd/$*/v3

.PHONY: $(AGENTS:%=build/bin/agent-%)
$(AGENTS:%=build/bin/agent-%): build/bin/agent-%:
	@echo "building the agent of Cilium $* from its Go module; the first time takes some minutes"
	cd tests/agent/v$* && go build -v -o ../../../$@ .

.PHONY: $(DATAPATHS:%=build/bin/cilium-%)
$(DATAPATHS:%=build/bin/cilium-%): build/bin/cilium-%:
	@echo "building Cilium $* with its CNI plugin from its Go module; the first time takes some minutes"
	@# Beside the programs there are the sources of the datapath, which the agent compiles, and the CRDs.
	cd tests/datapath/v$* && module=$$(go list -m -f '{{.Dir}}' github.com/cilium/cilium) && \
		version=$$(go list -m -f '{{.Version}}' github.com/cilium/cilium) && \
		for program in $(DATAPATH_PROGRAMS); do \
			go build -v -ldflags "-s -w -X github.com/cilium/cilium/pkg/version.ciliumVersion=$${version#v}" \
				-o ../../../$@/$${program%=*} github.com/cilium/cilium/$${program#*=} || exit; \
		done && \
		cd ../../../$@ && rm -rf bpf crds && mkdir bpf crds && \
		cp -r $$module/bpf/*.[ch] $$module/bpf/include $$module/bpf/lib bpf && \
		cp $$module/pkg/k8s/apis/cilium.io/client/crds/*/*.yaml crds && chmod -R u+w bpf crds

.PHONY: build/bin/operator-$(OPERATOR)
build/bin/operator-$(OPERATOR):
	@echo 'building the allocators of the operator of Cilium $(OPERATOR) from its Go module; the first time takes some minutes'
	cd tests/operator/v$(OPERATOR) && go build -v $(OPERATOR_TAG) -o ../../../$@ .

.PHONY: $(BGP:%=build/bin/bgp-%)
$(BGP:%=build/bin/bgp-%): build/bin/bgp-%:
	@echo "building the BGP control plane of Cilium $* from its Go module; the first time takes some minutes"
	cd tests/bgp/v$* && go build -v -o ../../../$@ .

.PHONY: $(HELMS:%=build/bin/helm-%)
$(HELMS:%=build/bin/helm-%): build/bin/helm-%:
	@echo "building Helm $* from its Go module; the first time takes some minutes"
	@# Helm 3 takes the version of Kubernetes that it renders for from its linker; Helm 4 finds it by itself.
	cd tests/helm/v$* && go build -v -o ../../../$@ -ldflags "-s -w \
		-X helm.sh/helm/v$*/internal/version.version=$$(go list -f '{{.Version}}' -m helm.sh/helm/v$*) \
		-X helm.sh/helm/v$*/pkg/chartutil.k8sVersionMajor=1 \
		-X helm.sh/helm/v$*/pkg/chartutil.k8sVersionMinor=$$(go list -f '{{.Version}}' -m k8s.io/client-go | cut -d. -f2) \
		-X helm.sh/helm/v$*/pkg/lint/rules.k8sVersionMajor=1 \
		-X helm.sh/helm/v$*/pkg/lint/rules.k8sVersionMinor=$$(go list -f '{{.Version}}' -m k8s.io/client-go | cut -d. -f2)" \
		helm.sh/helm/v$*/cmd/helm

.PHONY: build/bin/promtool build/bin/prometheus
build/bin/promtool build/bin/prometheus: build/bin/%:
	@echo 'building $* from the Go module of Prometheus; the first time takes some minutes'
	@# Without the clients of all clouds, which tests do not need.
	cd tests/prometheus && go build -v -tags remove_all_sd -ldflags '-s -w' -o ../../$@ github.com/prometheus/prometheus/cmd/$*

.PHONY: build/bin/bgp-peer
build/bin/bgp-peer:
	@echo 'building a BGP daemon from the Go module of GoBGP'
	cd tests/bgp/peer && go build -v -o ../../../build/bin/bgp-peer .

.PHONY: build/bin/gobgpd
build/bin/gobgpd:
	@echo 'building gobgpd from the Go module of GoBGP'
	cd tests/gobgp && go build -v -ldflags '-s -w' -o ../../$@ github.com/osrg/gobgp/v4/cmd/gobgpd

.PHONY: frr-k8s
frr-k8s:
	@echo 'building the daemon of frr-k8s, its webhook and a network for it from their Go modules'
	cd tests/routes && go build -v -o ../../build/bin/frr-k8s github.com/metallb/frr-k8s/cmd/frr-k8s-controller
	cd tests/routes && go build -v -o ../../build/bin/frr-k8s-webhook . && go build -v -o ../../build/bin/frr-lab ./lab
	cd tests/routes && install "$$(go list -m -f '{{.Dir}}' github.com/metallb/frr-k8s)/frr-tools/reloader/frr-reloader.sh" ../../build/bin

.PHONY: deny
deny: $(CARGO_DENY) ## Check licences, bans and sources of all dependencies, and advisories where they can be fetched
	$(CARGO_DENY) --locked check licenses bans sources
	@if $(CARGO_DENY) fetch db >/dev/null 2>&1; then $(CARGO_DENY) --locked check advisories; \
	else echo 'advisories: NOT CHECKED, because the advisory database cannot be reached from here'; fi

build/tools/bin/cargo-deny:
	@echo 'installing cargo-deny $(CARGO_DENY_VERSION); once, some minutes'
	cargo install cargo-deny --version '^$(CARGO_DENY_VERSION)' --locked --root build/tools

.PHONY: scale
scale: tools ## Measure how fast many nodes are served on a real API server. NODES=1000 and POOLS=1 set the size; STATUS=1 measures `status`, SCRAPE=1 a scrape, WATCHERS=100 the cost of watchers (MODE=multi-pool, BLOCK_SIZE=24, RECLAIM=100 nodes that give a block back, FLAGS=... of the controller)
	cargo build --locked --release --bins --example scale
	cargo run --locked --release --example scale -- $(if $(NODES),--nodes $(NODES)) $(if $(POOLS),--pools $(POOLS)) $(if $(STATUS),--status) $(if $(SCRAPE),--scrape) $(if $(WATCHERS),--watchers $(WATCHERS)) $(if $(MODE),--mode $(MODE)) $(if $(BLOCK_SIZE),--block-size $(BLOCK_SIZE)) $(if $(RECLAIM),--reclaim $(RECLAIM)) $(if $(FLAGS),--flags '$(FLAGS)')

.PHONY: chaos
chaos: build/bin/controlplane build/bin/gobgpd ## Disturb the controller for MINUTES=10 on real API servers: replicas, requests, etcd and nodes, while an oracle reads every version. NODES=300 and SEED= as printed
	@# With the checks of a debug build, and fast enough for hundreds of nodes.
	cargo build --locked --profile simulation --bins --example chaos
	GOGC=$(TEST_GOGC) cargo run --locked --quiet --profile simulation --example chaos -- $(if $(MINUTES),--minutes $(MINUTES)) $(if $(NODES),--nodes $(NODES)) $(if $(SEED),--seed $(SEED))

.PHONY: takeover
takeover: tools ## Measure how long a node that joins waits when the leader ends, is killed, halted or cut off, with the default times
	DEFAULT_LEASE_TIMES=1 cargo test --locked --test it -- --nocapture election::of_three

.PHONY: generate
generate: build/bin/helm-3 ## Regenerate crds/ from the types, and what is rendered from the chart
	cargo run --locked --quiet -- crd --out crds
	cargo run --locked --quiet -- crd --out $(CHART)/files/crds
	scripts/render build/bin/helm-3 .

NAMESPACE := kube-system
NAME := cilium-node-ipam
CRDS := crd/nodeippools.nodeipam.io crd/nodeipblocks.nodeipam.io
# Helm, where it is installed. HELM= installs without it.
HELM ?= $(shell command -v helm)
# Further arguments of Helm, such as `--set createCiliumNodes=true` or `--values FILE`.
HELM_ARGS ?=
# The server merges (server-side apply) and refuses fields that it does not know.
APPLY = $(KUBECTL) apply --server-side --validate=strict
# The number of replicas of a Deployment that is there already stays as it was scaled.
REPLICAS = $(KUBECTL) -n $(NAMESPACE) get deployment/$(NAME) --ignore-not-found -o 'jsonpath={.spec.replicas}'
APPLY_ALL = $(APPLY) -f crds && \
	$(KUBECTL) wait --for=condition=Established --timeout=60s $(CRDS) && \
	n=$$($(REPLICAS)) && sed -e 's|image: $(NAME):.*|image: $(IMAGE)|' -e "s|^  replicas: 2$$|  replicas: $${n:-2}|" \
		manifests/install.yaml | $(APPLY) -f -
INSTALL = $(if $(HELM),scripts/helm-install '$(HELM)' '$(IMAGE)' $(HELM_ARGS),$(APPLY_ALL))

.PHONY: install
install: has-kubectl has-image ## Install into kubectl's cluster, with Helm if it is there. IMAGE=registry.example.com/name:tag is the image that the nodes pull
	$(INSTALL)
	@echo 'Installed. The controller changes nothing until Cilium runs with `ipam: crd` and there is a pool:'
	@echo '  $(KUBECTL) -n $(NAMESPACE) rollout status deployment/$(NAME)'
	@echo '  $(KUBECTL) apply -f manifests/examples/pool.yaml    # after you have put your labels and ranges into it'

.PHONY: upgrade
upgrade: has-kubectl has-image ## Upgrade what is installed: first the CRDs, then the controller. IMAGE= as for install
	@$(KUBECTL) -n $(NAMESPACE) get deployment/$(NAME) >/dev/null || { echo 'Nothing to upgrade: see `make install`.' >&2; exit 1; }
	$(INSTALL)
	@$(KUBECTL) -n $(NAMESPACE) rollout status deployment/$(NAME) --timeout=$(TIMEOUT) || { \
		echo 'The new controller is not ready. Pods keep their addresses meanwhile. What it says:' >&2; \
		echo '  $(KUBECTL) -n $(NAMESPACE) describe pod -l app.kubernetes.io/name=$(NAME)' >&2; \
		echo '  $(KUBECTL) -n $(NAMESPACE) logs deployment/$(NAME)' >&2; \
		exit 1; }

.PHONY: uninstall
uninstall: has-kubectl ## Remove the controller; no pod loses its address. CRDs, pools and claims stay; PURGE=1 removes them too
	$(KUBECTL) -n $(NAMESPACE) delete --ignore-not-found deployment/$(NAME)
	@# Its last writes still need its rights.
	$(KUBECTL) -n $(NAMESPACE) wait --for=delete --timeout=60s pod -l app.kubernetes.io/name=$(NAME)
	$(if $(HELM),$(HELM) uninstall $(NAME) --namespace $(NAMESPACE) --ignore-not-found)
	$(KUBECTL) delete --ignore-not-found -f manifests/install.yaml
	@echo 'The controller is gone. CiliumNodes are as they were: pods keep their addresses, and agents go on handing'
	@echo 'out the addresses of their CiliumNodes, but no node gets another block.'
ifeq ($(PURGE),1)
	scripts/purge '$(KUBECTL)'
else
	@echo 'CRDs, pools and claims are kept for the next `make install`; PURGE=1 removes them.'
endif

.PHONY: has-kubectl
has-kubectl:
	@command -v $(KUBECTL) >/dev/null || { \
		echo '$(KUBECTL) is missing: install it (https://kubernetes.io/docs/tasks/tools/), or name it with KUBECTL=path.' >&2; \
		exit 1; }

.PHONY: has-image
has-image:
	@[[ -n '$(IMAGE)' ]] || { \
		echo 'Say which image the nodes pull: IMAGE=registry.example.com/$(NAME):$(VERSION). `make image` builds it;' >&2; \
		echo 'where images are loaded into the nodes by hand, IMAGE=$(NAME):$(VERSION).' >&2; \
		exit 1; }

.PHONY: image
image: ## Build the container image, and its SBOM in build/sbom. IMAGE= is its name, CONTAINER=podman builds with podman, DOCS_URL= is the address of the site of the documents
	$(CONTAINER) build --target sbom --output build/sbom .
	$(CONTAINER) build --build-arg VERSION=$(VERSION) --build-arg DOCS_URL=$(DOCS_URL) --tag $(or $(IMAGE),$(NAME):$(VERSION)) .

.PHONY: sbom
sbom: build/tools/bin/cargo-cyclonedx ## Write the SBOM of the image to build/sbom, without a daemon
	PATH="$(CURDIR)/build/tools/bin:$$PATH" scripts/sbom build/sbom/$(NAME).cdx.json

build/tools/bin/cargo-cyclonedx: scripts/install-auditors
	scripts/install-auditors build/tools
	touch $@

.PHONY: package
package: build/bin/helm-3 ## Package the chart of a release into build/chart. HOMEPAGE= is the address of the project, for `home` and `sources`
	@[[ -n '$(HOMEPAGE)' ]] || { echo 'HOMEPAGE is missing: see docs/release.md' >&2; exit 1; }
	scripts/package-chart build/bin/helm-3 $(CHART) '$(HOMEPAGE)' build/chart

# The binaries of the plugin for krew, as ARCH=FILE, and the address of the directory where their archives will be.
KREW ?=
KREW_URL ?=
HOMEPAGE ?= $(KREW_URL)

.PHONY: krew
krew: ## Pack KREW='amd64=FILE arm64=FILE' as a plugin of kubectl into build/krew, with the manifest for KREW_URL
	@[[ -n '$(KREW)' && -n '$(KREW_URL)' ]] || { echo 'KREW and KREW_URL are missing: see docs/release.md' >&2; exit 1; }
	scripts/krew '$(HOMEPAGE)' '$(KREW_URL)' $(KREW)

.PHONY: static
static: ## Run the build steps of the image without a daemon, unoptimised, and check that the binary is static. ARCH=aarch64 for another architecture
	@# In a copy of what .dockerignore lets through, so that a file which the image would lack is missing here too.
	rm -rf build/context
	mkdir -p build/context
	sed -n 's/^!//p' .dockerignore | xargs cp --archive --target-directory=build/context
	@# It may run beside tests, which have to answer in time.
	PATH="$(CURDIR)/build/tools/bin:$$PATH" CARGO_TARGET_DIR='$(or $(CARGO_TARGET_DIR),$(CURDIR)/target)' nice build/context/scripts/build-static --profile dev $(if $(ARCH),--arch $(ARCH))

.PHONY: bench
bench: ## Measure the core; docs/performance.md says what the numbers mean
	cargo bench --locked

.PHONY: clean
clean: ## Remove everything that was built
	cargo clean
	rm -rf build
