# Muster. `make help` lists the targets; Go and git are all that any of them needs.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Nothing in the main binaries uses cgo. One setting for builds and tests, so that they share one build cache.
export CGO_ENABLED = 0

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Both servers of the lab report this version; kubectl refuses to talk to a server without one.
KUBE        := $(shell sed -n 's|^\tk8s.io/kubernetes ||p' go.mod)
KUBE_PKG    := k8s.io/component-base/version
KUBE_MINOR  := $(word 2,$(subst ., ,$(KUBE)))
LAB_LDFLAGS := -w -X main.version=$(VERSION) -X $(KUBE_PKG).gitVersion=$(KUBE) -X $(KUBE_PKG).gitMajor=1 -X $(KUBE_PKG).gitMinor=$(KUBE_MINOR) -X $(KUBE_PKG).gitTreeState=clean
LDFLAGS     := -s -w -X main.version=$(VERSION)
TOOL        := $(GO) tool -modfile=go.tools.mod
# The Go vulnerability database, or a mirror of it.
VULNDB      ?= https://vuln.go.dev

# Packages that have tests behind the build tag "lab".
LAB_PKGS     = $(filter-out deploy/chart/e2e/,$(sort $(dir $(shell git ls-files --cached --others --exclude-standard '*lab_test.go'))))
# Of these the one that has the whole system, each test with much of the machine.
LAB_WHOLE    = internal/lab/e2e/
# Go files of the tree that people write.
GO_FILES     = $(shell git ls-files --cached --others --exclude-standard '*.go' | grep -vE 'zz_generated|^client/(clientset|informers|listers)/')

.PHONY: help status node vm vm-image image test-image prove-image demo test test-lab test-node test-vm test-vm-node test-browser prove-vm prove-vm-many test-gpu test-soak prove-forecast prove-journal prove-tenants prove-volcano test-oracle check archtest lint format build generate generated bench climb bench-system bench-installed mutants race vuln clean FORCE

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## Build, start a simulated cluster, schedule on it and tell the story (Ctrl-C ends it)
	bin/muster demo

test: ## Every test that needs no running lab
	$(GO) test -ldflags=-w -timeout 11m ./...
	cd deploy/chart/e2e && $(GO) test -count=1 -ldflags=-w -timeout 5m ./... # what these read of other modules no cache of tests sees
	cd deploy/image/build && $(GO) test -count=1 -ldflags=-w -timeout 5m ./...
	cd internal/vm/conformity && $(GO) test -count=1 -ldflags=-w -timeout 5m ./...
	cd client && $(GO) test -count=1 -ldflags=-w -timeout 5m ./...

test-lab: build ## Tests against a real API server with simulated nodes: the whole system by itself, and before it the other packages, two at a time
	@if [ -z "$(LAB_PKGS)" ]; then echo "no lab tests in this tree"; else set -ex; \
	  export MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster; \
	  $(GO) test -count=1 -tags lab -p 2 -timeout 45m -ldflags "$(LAB_LDFLAGS)" $(addprefix ./,$(filter-out $(LAB_WHOLE),$(LAB_PKGS))); \
	  $(GO) test -count=1 -tags lab -timeout 45m -ldflags "$(LAB_LDFLAGS)" ./$(LAB_WHOLE); fi
	cd deploy/chart/e2e && MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster $(GO) test -count=1 -tags lab -run '^(TestInstall|TestVMAdmission|TestVolcanoRights)$$' -timeout 10m -ldflags -w ./...

test-node: bin/realnode bin/muster-lab dist/node ## An installation on a real node, in containers (needs root, cgroups, and Debian's containerd, runc, containernetworking-plugins, iptables, busybox-static)
	cd deploy/chart/e2e && MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_REALNODE_BINARY=$(CURDIR)/bin/realnode MUSTER_IMAGES=$(CURDIR)/dist/node \
	  $(GO) test -count=1 -tags lab,node -run '^TestNode$$' -v -timeout 20m -ldflags -w ./...

test-vm: ## Pods that boot, and the parts of muster-vm with real machines, without KVM (needs root, libvirtd, QEMU, CNI plugins in /usr/lib/cni, and what vm-image needs); else NOT CHECKED
	-$(MAKE) vm-image
	MUSTER_VM_IMAGE=$(CURDIR)/dist/tiny.qcow2 $(GO) test -count=1 -ldflags=-w -v -timeout 20m -run '^(TestBoot|TestSuspend|TestKillsReal|TestVolumes)$$' ./cmd/muster-vm
	MUSTER_VM_MACHINES=1 $(GO) test -count=1 -ldflags=-w -v -timeout 15m -run '^(TestConformance|TestSecrets|TestQEMU)$$' ./internal/vm/hypervisor/libvirt ./internal/vm/console

test-vm-node: bin/realnode bin/muster-lab bin/muster-vm dist/node ## An installation on a real node whose kubelet has muster-vm for its runtime: Jobs and gangs of machines, without KVM (needs what test-node and test-vm need); else NOT CHECKED
	-$(MAKE) vm-image
	cd deploy/chart/e2e && MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_REALNODE_BINARY=$(CURDIR)/bin/realnode MUSTER_IMAGES=$(CURDIR)/dist/node \
	  MUSTER_VM_BINARY=$(CURDIR)/bin/muster-vm MUSTER_VM_IMAGE=$(CURDIR)/dist/tiny.qcow2 \
	  $(GO) test -count=1 -tags lab,node -run '^TestVMNode$$' -v -timeout 40m -ldflags -w ./...

prove-vm: bin/muster-vm bin/critest bin/crictl ## test-vm, then critest and crictl: directly, and through the proxy with containerd (needs besides what test-vm needs Debian's containerd, runc, iptables and a static busybox); prints a table of every spec
	$(MAKE) test-vm
	cd internal/vm/conformity && MUSTER_VM_BINARY=$(CURDIR)/bin/muster-vm MUSTER_VM_IMAGE=$(CURDIR)/dist/tiny.qcow2 MUSTER_CRITEST_BINARY=$(CURDIR)/bin/critest MUSTER_CRICTL_BINARY=$(CURDIR)/bin/crictl \
	  $(GO) test -count=1 -ldflags=-w -v -timeout 150m .

prove-vm-many: vm-image ## Ten pods on QEMU at once and a hundred that come and go, all with real networks (needs what test-vm needs); how long a machine's steps take, what 500 cost with a fake hypervisor, and what the proxy adds, judged on an idle machine; prints the figures
	MUSTER_TEST_VM_PODS=100 MUSTER_VM_IMAGE=$(CURDIR)/dist/tiny.qcow2 $(GO) test -count=1 -ldflags=-w -v -timeout 30m -run '^TestMany$$' ./cmd/muster-vm
	MUSTER_TEST_NETWORK_PODS=100 MUSTER_TEST_NODE_PODS=100 $(GO) test -count=1 -ldflags=-w -v -timeout 15m -run '^(TestRealComings|TestComings)$$' ./internal/vm/network ./internal/vm/node
	MUSTER_VM_IMAGE=$(CURDIR)/dist/tiny.qcow2 $(GO) test -ldflags=-w -run '^$$' -bench Machine -benchtime 3x -timeout 15m ./cmd/muster-vm
	$(GO) test -ldflags=-w -run '^$$' -bench '500$$|Added' -timeout 15m ./internal/vm/runtime ./internal/vm/proxy

test-browser: ## Every page of the role ui in a real Chromium (Debian: chromium), on a simulated cluster of 500 nodes that lives on; else NOT CHECKED (SHOTS=docs/operations/ui draws the pages anew)
	MUSTER_SCREENSHOTS=$(if $(SHOTS),$(abspath $(SHOTS))) $(GO) test -count=1 -tags browser -run '^TestBrowser$$' -v -timeout 30m -ldflags=-w ./internal/ui

test-gpu: build node ## Where one NVIDIA GPU is visible: reservation by NVML, what containers are told, and what CUDA makes of it; prints a table, or NOT CHECKED
	MUSTER_NODE_BINARY=$(CURDIR)/bin/muster-node MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster \
	  $(GO) test -count=1 -tags lab -run '^TestRealGPU$$' -v -timeout 5m -ldflags "$(LAB_LDFLAGS)" ./internal/lab/e2e

test-soak: ## A busy cluster of 200 simulated nodes for 10,000 cycles, every one audited, then one of 100 that the faces share (a quarter of an hour); prints the figures
	SOAK_ROUNDS=10000 $(GO) test -count=1 -run '^TestSoak$$' -v -timeout 30m ./internal/sim
	SOAK_ROUNDS=10000 $(GO) test -count=1 -run '^TestFacesLive$$' -v -timeout 60m ./internal/engine/enginetest

prove-forecast: ## Forecasts of starts against what came: FORECASTS (2000) for each of ten loads, the recorded trace ../shared/traces/openb among them, beside two other methods (half an hour); writes the table and plots of docs/concepts/eta.md
	FORECASTS=$(or $(FORECASTS),2000) $(GO) test -count=1 -run '^TestProve$$' -v -parallel 10 -timeout 6h ./internal/trial/forecast

prove-journal: ## A journal of JOURNAL_HOURS (168) simulated hours, every cycle of it decided again byte for byte, and a crash at each byte (minutes); prints the figures
	JOURNAL_HOURS=$(or $(JOURNAL_HOURS),168) $(GO) test -count=1 -run '^(TestDaysAreReplayed|TestCrashAtEachByte)$$' -v -timeout 60m ./internal/journal

prove-tenants: build ## Tenants that write whatever Muster reads, 20 writes a second for TENANT_FUZZ (60m), all audited; prints a table
	TENANT_FUZZ=$(or $(TENANT_FUZZ),60m) MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster \
	  $(GO) test -count=1 -tags lab -run '^TestTenantFuzz$$' -v -timeout 24h -ldflags "$(LAB_LDFLAGS)" ./internal/lab/e2e

prove-volcano: build ## Specs of Volcano's own suites, by their names, with Muster in Volcano's place, and its example files, as they are (twenty minutes); prints a table of the specs and writes the figures of docs/operations/volcano-specs.md (ONLY=reclaim,GP- for those whose suite and name contain a part, nothing written; ONLY=examples)
	MUSTER_VOLCANO_SPECS=$(if $(ONLY),1,$(CURDIR)/docs/operations/volcano-specs.md) MUSTER_VOLCANO_ONLY='$(ONLY)' MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster \
	  $(GO) test -count=1 -tags lab -run '^TestVolcano(Specs|Examples)$$' -v -timeout 60m -ldflags "$(LAB_LDFLAGS)" ./internal/lab/e2e

prove-kueue: build bin/kueue ## Kueue's own controller and webhooks, of its release, beside Muster: what it admits starts whole and what it does not holds nothing; then its queues become Muster's, as the page says (needs Kueue's module; minutes to build)
	MUSTER_KUEUE_BINARY=$(CURDIR)/bin/kueue MUSTER_KUEUE_CONFIG=$$(cd internal/lab/kueue && $(GO) list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config/components \
	  MUSTER_LAB_BINARY=$(CURDIR)/bin/muster-lab MUSTER_BINARY=$(CURDIR)/bin/muster $(GO) test -count=1 -tags lab -run '^TestKueue$$' -v -timeout 15m -ldflags "$(LAB_LDFLAGS)" ./internal/lab/e2e

test-oracle: ## The victim search against brute force on 60,000 small clusters, Volcano's law against its documentation on 20,000, and properties on thousands (half an hour); prints the figures
	ORACLE_CASES=60000 $(GO) test -count=1 -v -timeout 30m ./internal/engine/solver ./internal/engine/plugins/topology
	ORACLE_CASES=20000 $(GO) test -count=1 -run '^Test(Oracle|Law|Order)$$' -v -timeout 30m ./internal/engine/plugins/votes
	$(GO) test -count=1 -run 'EvictionsEnd|Disruption|Upheaval' -v -timeout 30m ./internal/engine/enginetest -rapid.checks=3000
	$(GO) test -count=1 -run 'Turns|Budget|Disruption' -v -timeout 30m ./internal/engine/enginetest -rapid.checks=10000
	$(GO) test -count=1 -run 'Wild(Faces)?$$' -v -timeout 60m ./internal/engine/enginetest -wild.stories=4000

check: archtest ## Architecture rules, vet, format and linters
	$(GO) vet ./...
	$(GO) vet -tags browser ./internal/ui
	cd internal/lab/realnode && GOOS=linux $(GO) vet ./...
	cd deploy/chart/e2e && GOOS=linux $(GO) vet -tags lab,node ./...
	cd internal/vm/conformity && GOOS=linux $(GO) vet ./...
	@unformatted=$$($(TOOL) gofumpt -l $(GO_FILES)); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (run: make format):"; echo "$$unformatted"; exit 1; fi
	$(MAKE) lint

archtest: ## Only the architecture rules (seconds)
	$(GO) test -count=1 ./internal/archtest

lint: ## Only the linters
	$(TOOL) golangci-lint run ./...

format: ## Format the Go files
	@$(TOOL) gofumpt -w $(GO_FILES)

build: bin/muster bin/muster-lab ## Both binaries into bin/

bin/muster: FORCE
	$(GO) build -o $@ -ldflags "$(LDFLAGS)" ./cmd/muster

bin/muster-lab: FORCE
	$(GO) build -o $@ -ldflags "$(LAB_LDFLAGS)" ./cmd/muster-lab

bin/realnode: FORCE
	cd internal/lab/realnode && $(GO) build -o ../../../$@ -ldflags "$(LAB_LDFLAGS)" .

bin/kueue: FORCE
	cd internal/lab/kueue && CGO_ENABLED=0 $(GO) build -o ../../../$@ -ldflags "-s -w" sigs.k8s.io/kueue/cmd/kueue

bin/helm-install: FORCE
	cd deploy/chart/e2e && $(GO) build -o ../../../$@ -ldflags -w ./install

node: bin/muster-node ## What runs on nodes into bin/ (needs a C compiler: it loads the GPU driver's library when asked)

bin/muster-node: FORCE
	@command -v "$${CC:-gcc}" >/dev/null || { echo "bin/muster-node needs a C compiler ($${CC:-gcc}), because it is built with cgo; without one: go build ./cmd/muster-node, which can only simulate a GPU"; exit 1; }
	CGO_ENABLED=1 $(GO) build -o $@ -ldflags "$(LDFLAGS)" ./cmd/muster-node

vm: bin/muster-vm ## The VM runtime into bin/ (static, without cgo)

bin/muster-vm: FORCE
	$(GO) build -o $@ -ldflags "$(LDFLAGS)" ./cmd/muster-vm

# The CRI's own test suite, and its command line, of the release that internal/vm/conformity names.
bin/critest: FORCE
	cd internal/vm/conformity && $(GO) test -c -ldflags=-w -o ../../../$@ sigs.k8s.io/cri-tools/cmd/critest

bin/crictl: FORCE
	cd internal/vm/conformity && $(GO) build -ldflags=-w -o ../../../$@ sigs.k8s.io/cri-tools/cmd/crictl

vm-image: dist/tiny.qcow2 ## A small disk for tests of the VM runtime into dist/ (Debian 12: apt, dpkg-deb, cpio, qemu-img, busybox-static; no root, nothing is mounted)

dist/tiny.qcow2: $(wildcard internal/vm/node/tiny/* internal/vm/node/tiny/contract/*.go)
	internal/vm/node/tiny/build.sh $@ dist/tiny.work

image: bin/image ## The three container images into dist/, as OCI archives, with their bills of materials (no container engine, no root; muster-node needs Debian 12 and a C compiler for each architecture; ARCH=amd64 makes fewer)
	bin/image --out dist $(if $(ARCH),--arch $(ARCH))

bin/image: FORCE
	cd deploy/image/build && $(GO) build -o ../../../bin/image .

# The images for a real node on this machine.
dist/node: bin/image FORCE
	bin/image --out dist/node --arch $$($(GO) env GOARCH)

test-image: image ## The images: a second build is the same, byte by byte, and every command line that pods are given is accepted in them; prints the lines
	bin/image --out dist/again $(if $(ARCH),--arch $(ARCH))
	cmp dist/muster.tar dist/again/muster.tar
	cmp dist/muster-node.tar dist/again/muster-node.tar
	cmp dist/muster-vm.tar dist/again/muster-vm.tar
	rm -r dist/again
	cd deploy/image/build && MUSTER_IMAGES=$(CURDIR)/dist $(GO) test -ldflags=-w -count=1 -v -run '^TestCommandLines$$' .

prove-image: ## test-image for every architecture (needs each one's C compiler with its library: gcc-aarch64-linux-gnu and libc6-dev-arm64-cross; and qemu-user-static)
	$(MAKE) test-image ARCH=

generate: ## Run the generators (deepcopy methods and CRDs of api/, the client); leaves no diff when all is up to date
	$(GO) generate ./...
	cd client && $(GO) generate ./...

generated: ## Whether the generators would change anything; says what, and leaves it changed
	@state() { git status --porcelain; git diff | sha256sum; }; before=$$(state); $(MAKE) generate; \
	  [ "$$before" = "$$(state)" ] || { git diff --stat | cat; echo "what is generated was not up to date: commit what make generate has changed"; exit 1; }

status: ## Write docs/status.md of its claims and results; with ID="claim …" run their commands first and leave the results (needs a clean tree)
	$(GO) run ./docs/status $(ID)

bench: ## Go benchmarks; compare two runs with: go tool -modfile=go.tools.mod benchstat OLD NEW
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m $$($(GO) list ./internal/... | grep -E '/internal/(climb|cluster|fairshare|engine|dialect|scheduler|usage)(/|$$)' || echo ./internal/archtest)

climb: bin/muster-lab ## Search ten minutes for the slowest scheduling cycle (CLIMB="--for 1h --keep found -o json"); what was found and is kept in internal/climb/testdata/cases, `make bench` measures
	bin/muster-lab climb search $(CLIMB)

# The program that measures, with the engine of an old tree: make dist/runner-93118e2 && bin/muster-lab climb search --runner dist/runner-93118e2
dist/runner-%: internal/climb/testdata/%.patch FORCE
	@mkdir -p dist; git worktree list --porcelain | grep -q "^worktree $(CURDIR)/dist/$*$$" || git worktree add --detach dist/$* $*
	rm -rf dist/$*/internal/climb dist/$*/cmd/runner; cp -r internal/climb dist/$*/internal/; find dist/$*/internal/climb -name '*_test.go' -delete
	cd dist/$* && git apply --unsafe-paths ../../$< && $(GO) build -o ../$(@F) ./cmd/runner

bench-system: build ## Whole cases on a lab of 500 nodes, by turns with a stock kube-scheduler, five rounds each (needs the load driver beside the checkout); BENCH="-case large" for one that takes long, "-scale 0.02" for a trial, "-profile DIR", "-results bench/results.yaml"
	$(GO) run ./bench -bin bin $(BENCH)

bench-installed: build bin/realnode bin/helm-install dist/node ## The case fill with the chart installed on a real node, against one process on the same lab, three rounds of each (needs what test-node needs, and the load driver); prints a table (BENCH="-o json", or BENCH="-rounds 1 -- -nodes 20 -size 50" for a trial)
	$(GO) run ./bench -bin bin -case installed -rounds 3 $(BENCH)

mutants: ## Neutralise each point, key and field in turn: some scenario must notice
	@files=$$(git grep -l --untracked '^func TestMutants' -- '*_test.go' || true); \
	if [ -z "$$files" ]; then echo "no mutation tests in this tree"; exit 0; fi; set -x; \
	$(GO) test -count=1 -tags mutants -timeout 60m -run '^TestMutants' -v $$(dirname $$files | sort -u | sed 's|^|./|')

race: ## Unit tests of the concurrent packages under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 30m $$($(GO) list ./internal/... | grep -vE '/internal/(lab|archtest)(/|$$)')

vuln: ## Known vulnerabilities in what the product's binaries call (VULNDB: the database's address)
	$(TOOL) govulncheck -db $(VULNDB) ./cmd/muster ./cmd/muster-node

clean: ## Remove what the targets made
	rm -rf bin dist .lab
