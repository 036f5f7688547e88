# `make demo` and `make test` set up what is missing; `make bench-frontend` and `bench-export` compare with other programs.

CARGO := cargo
PROFILE := --release   # one profile for everything: LibTorch's bindings are compiled once
HOST := -p myxtts-host -p myxtts-web -p myxtts-cli
BIN := target/release/myxtts   # for what computes with tensors it becomes myxtts-torch, beside it
DEMO := demo
SENTENCE := The old fox sings near the quiet river.

.PHONY: demo test test-host build setup docs gpu-test bench-frontend bench-corpora bench-export

setup:
	@scripts/setup.sh

build: setup
	$(CARGO) build $(PROFILE)

# The bundled voice speaks, a new one is tuned from it, and says the same.
demo: build
	@mkdir -p $(DEMO)
	@$(BIN) synth --text "$(SENTENCE)" -o $(DEMO)/bundled.wav
	@$(BIN) sample-corpus $(DEMO)/corpus --clips 60
	@rm -rf $(DEMO)/checkpoints   # the demo starts over each time
	@$(BIN) train --config configs/demo.yaml
	@$(BIN) synth --checkpoint $(DEMO)/checkpoints --text "$(SENTENCE)" -o $(DEMO)/demo.wav
	@echo
	@echo "bundled voice: $(DEMO)/bundled.wav"
	@echo "new voice:     $(DEMO)/demo.wav"
	@echo "checkpoint:    $(DEMO)/checkpoints"
	@echo "TensorBoard:   tensorboard --logdir $(DEMO)/checkpoints/logs"

test: test-host
	@scripts/setup.sh
	$(CARGO) clippy $(PROFILE) --workspace --all-targets -- -D warnings
	@scripts/tests.sh $(CARGO) test $(PROFILE) -p torchx --tests
	@scripts/test-browser.sh
	@MYXTTS_TEST_PYTHON=$$(scripts/test-python.sh) scripts/tests.sh $(CARGO) test $(PROFILE) -p myxtts --lib --test cli --test serve --test diagnosis
	$(CARGO) test $(PROFILE) -p myxtts --doc

# What needs no LibTorch goes first: a mistake in a parser is known in a minute.
test-host:
	@scripts/espeak.sh
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(PROFILE) $(HOST) --all-targets -- -D warnings
	MYXTTS_TEST_PYTHON=$$(scripts/test-python.sh) scripts/tests.sh $(CARGO) test $(PROFILE) $(HOST)

# The pages that come from the code.
docs: build
	$(BIN) config --reference > docs/configuration.md
	$(BIN) config --defaults > configs/default.yaml

# Everything that needs a GPU, on a machine that has one.
gpu-test: setup
	@scripts/tests.sh $(CARGO) test $(PROFILE) --workspace -- --ignored --test-threads=1

# The front end against Python peers, measured in the same run. CLIPS=13100 for 24 hours of speech; see docs/frontend.md.
bench-frontend: build
	$(CARGO) build $(PROFILE) -p myxtts-host --example frontend
	@benches/frontend/run.sh

# Shards to samples beside webdataset and datasets, on the same shards and cores (docs/corpora.md); opening, planning and memory
# at 10³ … 10⁷ rows (docs/cache.md), ROWS="1000 1000000" for fewer.
bench-corpora: build
	$(CARGO) build $(PROFILE) -p myxtts-host --example shards --example corpora
	@benches/corpora/read.sh
	@benches/corpora/index.sh target/release/examples/corpora

# Exported voices in onnxruntime on one core, beside a voice of Piper and beside this program; see docs/export.md.
bench-export: build
	@benches/export/run.sh
