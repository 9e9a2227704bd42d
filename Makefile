# memprof: build, demonstrate and test.
#
#   make build       bin/memprof, one file with everything in it
#   make web         dist/memprof-web/index.html: import, report and explain as one page that runs in a browser, without a network
#   make web-test    drops files on that page in headless Chromium: it says what the command line says (a minute of compiling)
#   make web-large   drops a snapshot of 1 GB on that page in headless Chromium, and says how long it takes and how much memory (1 GB of disk)
#   make demo        records a job (simulated GPU where there is no real one), reports, verifies, checks
#   make check       what one runs before a commit: form, vet, tests that record no job, quick ones of the hook; a minute on two cores
#   make test        all tests that need no GPU, but web-test, duckdb-test and the longer ones below
#   make duckdb-test the README's DuckDB commands, where there is a C++ compiler (a minute)
#   make rings       fails where files of a package or C folder are too many in a ring, or packages too many; part of test
#   make campaign    kills, full disks, hostile directories, refused driver calls, random jobs under all policies, late readers: about
#                    two hours on two cores. Each test takes CAMPAIGN=240 seconds, or jobs in proportion, and prints its seed, which
#                    MEMPROF_SEED=... or -served-seed repeats; without CAMPAIGN the same tests run in short in make test
#   make fits        all samples on simulated cards that just suffice for torch's own allocator (a minute); make test has a few
#   make soak        200 million events on the simulated GPU: nothing may grow (ten minutes, 2 GB)
#   make peaks       what the recordings of samples/ reserve under both presets and PyTorch's allocator; compact against what it was
#   make fuzz        every verb over changed files, ten minutes a target (FUZZTIME=1m for less)
#   make bench       the benchmarks that need no GPU
#   make axe         checks pages of samples with axe-core, which it gets from npm
#   make page-bench  a table of what pages of one and ten million events and a served recording of a hundred million take, in
#                    headless Chromium: how soon they are there, a frame while panning, an answer, bytes an event (300 MB)
#   make gpu-check   the acceptance suite, on a machine with a CUDA GPU and torch (needs no Go there): PART=1 runs a part,
#                    at most eight minutes (samples/gpu_check.py --list names them); TORCH_TESTS=DIR, PyTorch's own tests there
#   make dist        tarballs, .deb, wheel, sums and module lists for x86-64 and arm64, into dist/ (root, Debian; 20 minutes);
#                    SHIM_HEADERS="2.6=DIR 2.11=DIR:CUDA_DIR", folders of torch's headers, puts shims into memprof and wheel
#   make dist-check  tries what dist/ has: old glibc, musl, arm64, no compiler, read-only home, a wheel in a venv, the blocks
#                    of memprof help install; DIST_CHECKS=PATTERN runs those whose name matches
#   make clean       removes what the others made

SHELL := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
# Leaves out what memprof does not use: gonum/plot's PDF, EPS and TeX output, arrow-go's own JSON library, HTTP/2.
TAGS := minimal,arrow_json_stdlib,nethttpomithttp2
DEMO := demo-run
WEB := dist/memprof-web

# The demo's job: the training script where there is a GPU and torch, else its recording.
DEMO_JOB = $(shell python3 -c 'import sys, torch, torchvision; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1 \
	&& echo python3 samples/jobs/resnet50.py --iterations 20 || echo bin/memprof lab rerun samples/resnet50)

.PHONY: build hook web web-test web-large demo check test go-lint go-quick c-quick python-quick go-test race-test c-test python-test torch-test torch-there tested duckdb-test rings campaign fits peaks fuzz soak bench axe page-bench gpu-check dist dist-check clean

build: hook
	go build -tags $(TAGS) -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/memprof ./cmd/memprof

hook:
	$(MAKE) -C hooks dist

# The page has everything in it, because a page from disk may load nothing: memprof as base64 of gzip, and the scripts of its worker,
# of which the first is Go's own.
web:
	@mkdir -p bin $(WEB)
	GOOS=js GOARCH=wasm go build -tags $(TAGS) -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/memprof.wasm ./cmd/memprof
	cd cmd/memprof/web && gzip -9n <$(CURDIR)/bin/memprof.wasm | base64 -w0 | sed -e '/^@packed$$/{r /dev/stdin' -e 'd}' \
	  -e "/^@scripts$$/{r $$(go env GOROOT)/lib/wasm/wasm_exec.js" -e 'r files.js' -e 'r worker.js' -e 'd}' \
	  -e '/^@page$$/{r page.js' -e 'd}' index.html >$(abspath $(WEB))/index.html

web-test:
	go test ./cmd/memprof -run '^TestWeb$$' -web -count 1 -v

web-large:
	@mkdir -p bin
	go test ./analysis/snapshot -run '^TestLarge$$' -large 1000000000 -large-kept $(CURDIR)/bin/large.pickle -count 1 -v
	go test ./cmd/memprof -run '^TestWebFile$$' -web-file $(CURDIR)/bin/large.pickle -count 1 -v
	rm bin/large.pickle

# Without Go on the machine the built bin/memprof is taken as it is, here and in gpu-check.
demo:
	@if command -v go >/dev/null; then $(MAKE) -s build; fi
	@bin/memprof record --force -o $(DEMO) -- $(DEMO_JOB)
	@bin/memprof report $(DEMO)
	@bin/memprof verify $(DEMO)
	@bin/memprof check $(DEMO) --gate 'waste.external < 5%' --gate 'reserved.peak < 40GiB'

# Two parts at a time, in this order: each leaves a core idle for minutes, as its longest test runs last and alone, or waits.
test: hook
	$(MAKE) -j2 go-test c-test torch-there race-test python-test rings

check: hook
	@$(MAKE) -s -j2 go-quick c-quick python-quick

# Tests are compiled with the tags of bin/memprof, all by one set of flags, so that no package is compiled twice. No debugger's tables
# are made, and a compiler takes one core, as several run at a time: a tenth of the compilers' time.
go-lint go-test go-quick race-test python-test rings tested duckdb-test: export GOFLAGS := $(GOFLAGS) -tags=$(TAGS) -buildvcs=false '-gcflags=all=-dwarf=false -c=1'

go-lint:
	@unformatted=$$(gofmt -l cmd trace bfc analysis report hooks); if [ -n "$$unformatted" ]; then echo "not gofmt'ed: $$unformatted"; exit 1; fi
	go vet ./...

# Without a prerequisite that another target must end for: else make starts it last. All of vet has run before.
go-test: hook
	@$(MAKE) -s go-lint
	go test -vet=off -timeout 45m ./...
	go test ./.ci/dist

# With -short no job is recorded but one, nothing is compiled, and no browser starts. The twin has no short form.
go-quick: hook go-lint
	go test -vet=off -short -timeout 5m $$(go list ./... | grep -v hooks/twin) | grep -v 'no test files'; exit $${PIPESTATUS[0]}

# Where threads of Go meet: the collector and its readers, readers of parts, and the sampler. What is beside them calls the hook
# from one thread; what is skipped has its files to itself.
race-test: hook
	go test -vet=off -race -short ./trace/spool ./hooks ./hooks/nvml
	go test -vet=off -race -short ./trace/collect -skip 'FullDisk|DiskStays|TestRing$$|RecoverEquals|ValidTexts|Descriptors|Ballast'
	go test -vet=off -race -short ./trace/dataset -run 'Reader|Readings|Read'

# The Go tests run beside them: with four at a time, those of cmd/memprof take three times as long as alone.
C_TEST_JOBS ?= 2
c-test: hook
	$(MAKE) -C hooks -j$(C_TEST_JOBS) -O test

c-quick: hook
	$(MAKE) -C hooks -O test-quick | grep -v '^ok'; exit $${PIPESTATUS[0]}

# Those whose processes start no others, and share no memory with them.
PYTHON_QUICK = test_adapters test_attribution test_calls test_contexts test_interface test_iterations test_kv test_labels test_modules test_phases test_stacks test_watch
python-quick: hook
	@$(MAKE) -s hooks/build/passed/python

# Again when what it tests has changed, as the others.
hooks/build/passed/python: hooks/dist/libmemprof.so hooks/dist/sim/libcuda.so.1 $(shell find hooks/python -name '*.py')
	@if command -v python3 >/dev/null; then cd hooks/python/tests && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest -q $(PYTHON_QUICK); fi
	@mkdir -p $(@D) && touch $@

python-test: hook
	@if command -v python3 >/dev/null; then \
	  export PYTHONDONTWRITEBYTECODE=1; python3 -m unittest discover -s hooks/python/tests && python3 -m unittest discover -s samples/tests; \
	else echo "no python3 here: the tests of hooks/python and samples are left out"; fi

# Jobs that run without a GPU need a real torch. Where there is none, root makes a root of Debian with one.
torch-test: tested
	.ci/torch-test

# As go-test: with `tested` as its prerequisite it would begin last, and alone.
torch-there: hook
	@$(MAKE) -s tested
	.ci/torch-test --if-there

# With the flags of go-test, whose compiled packages then serve.
tested: hook
	go build -o bin/memprof ./cmd/memprof

rings: hook
	go run ./.ci/rings
	.ci/rings-c

# As go-lint and go-test, whose compiled packages and whose facts of packages serve.
duckdb-test:
	@command -v c++ >/dev/null || { echo "no C++ compiler: DuckDB's commands are left out"; exit 0; }; \
	cd cmd/memprof/testdata/duckdb && go vet ./... && go test -vet=off ./...

# Packages one after the other: those of the campaign wait for processes more than they compute. Then jobs of
# random seeds under every policy, which must compute the same and take what the model says; jobs that close their
# descriptors and have odd command lines; every driver call refused, singly and in pairs; and 100,800 programs whose
# readers are late.
CAMPAIGN ?= 240
campaign: hook
	set -o pipefail; MEMPROF_CAMPAIGN=$(CAMPAIGN) go test ./... -run '^Test(Campaign|Killed)' -count 1 -v -p 1 -timeout 6h | grep -v 'no test files\|no tests to run\|^PASS$$'
	go test ./cmd/memprof -run '^TestModelAgrees$$' -served-jobs $(CAMPAIGN) -count 1 -v -timeout 6h
	go test ./cmd/memprof -run '^TestResultsAgree$$' -served-jobs $$(($(CAMPAIGN) / 24)) -count 1 -v -timeout 6h
	MEMPROF_TEST_ALL=1 go test ./cmd/memprof ./trace/dataset ./report -run '^Test(RerunOfSamples|SamplesFitScreens|PageNumbers|FlippedBits|MCPAnswersAll|Web|LargePages)$$' -count 1 -timeout 6h
	go test ./cmd/memprof -run '^TestRecord$$/^(closing|encoding|hostile)$$' -count 10 -timeout 6h
	MEMPROF_TEST_ALL=1 MEMPROF_TEST_JOBS=$(CAMPAIGN) MEMPROF_TEST_PAIRS=$$((8 * $(CAMPAIGN))) $(MAKE) -C hooks -j$(C_TEST_JOBS) -O test
	MEMPROF_TEST_JOBS=$$((420 * $(CAMPAIGN))) MEMPROF_TEST_SEED=$${MEMPROF_SEED:-$$(date +%s)} $(MAKE) -C hooks run/asan/capture/arena/random_readers

fits: hook
	go test ./cmd/memprof -run '^TestFits$$' -fits-all -count 1 -v

peaks:
	go test ./analysis/recording -run '^TestPeaks$$' -count 1 -v

soak: hook
	go test ./cmd/memprof -run TestSoak -v -timeout 2h -soak-events 200000000

# What is found lies in testdata/fuzz of the package, to be kept once it is mended: make test runs it.
# The simulated driver is for rerun.
FUZZTIME ?= 10m
fuzz: hook
	@set -e; for package in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  for target in $$(go test $$package -list '^Fuzz' | grep '^Fuzz'); do \
	    echo "$$package $$target"; \
	    LD_LIBRARY_PATH=$(CURDIR)/hooks/dist/sim go test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x; \
	  done; \
	done

bench: hook
	go test -run '^$$' -bench . -benchtime 2s ./...

page-bench:
	@go vet ./report ./report/view
	@set -o pipefail; { go test ./report -run TestLargePages -page-events 1000000 -count 1 -v && \
	go test ./report -run TestLargePages -page-events 10000000 -count 1 -v && \
	go test ./report/view -run TestLargeView -view-events 100000000 -count 1 -v -timeout 30m; } | \
	awk -F '\t' 'BEGIN { line = "%-86s  %-18s  %s\n"; printf line, "measured, in headless Chromium", "value", "promised" } \
	sub(/.*row: /, "") { printf line, $$1, $$2, $$3; fflush(); next } /FAIL|want|panic/ { print }'

# Training, CUDA graphs, a KV cache, snapshots of PyTorch, a comparison; a page with a request that failed is one of the test's own.
AXE_PAGES := samples/resnet50 samples/gpt2 samples/irregular/graphs samples/irregular/prefill samples/snapshots/native.pickle.gz samples/snapshots/pools-expandable-cut.pickle.gz

axe: build
	@set -e; dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; npm install --silent --no-audit --no-fund --prefix $$dir axe-core@4; \
	for of in $(AXE_PAGES); do bin/memprof report --html -o $$dir/$$(basename $$of).html $$of; done; \
	bin/memprof diff --html -o $$dir/diff.html samples/resnet50 samples/zoo/resnet50; \
	go test ./report -run TestAxe -count 1 -axe $$dir/node_modules/axe-core/axe.min.js -page "$$dir/*.html"

# With TORCH_TESTS=DIR only PyTorch's own tests in that folder: samples/checks/torch_tests.py says how.
gpu-check:
	@if command -v go >/dev/null; then $(MAKE) build; fi
	TORCH_TESTS='$(TORCH_TESTS)' python3 samples/gpu_check.py --memprof bin/memprof $(if $(TORCH_TESTS),torch_tests) $(if $(PART),--part $(PART))

dist:
	TAGS=$(TAGS) .ci/dist/build

dist-check:
	.ci/dist/check

clean:
	rm -rf bin dist $(DEMO)
	$(MAKE) -C hooks clean
