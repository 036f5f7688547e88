# Two commands: `make demo` and `make test`. Each sets up what is missing.

CARGO := cargo
PROFILE := --release   # one profile for everything: LibTorch's bindings are compiled once
BIN := target/release/myxtts
DEMO := demo

.PHONY: demo test build setup gpu-test clean-demo

setup:
	@scripts/setup.sh

build: setup
	$(CARGO) build $(PROFILE)

demo: build
	@$(BIN) sample-corpus $(DEMO)/corpus
	@$(BIN) train --config configs/demo.yaml --reset-training
	@$(BIN) synth --checkpoint $(DEMO)/checkpoints --text "The quick brown fox runs over the old bridge." -o $(DEMO)/demo.wav
	@echo
	@echo "audio:       $(DEMO)/demo.wav"
	@echo "checkpoint:  $(DEMO)/checkpoints/best"
	@echo "TensorBoard: tensorboard --logdir $(DEMO)/checkpoints/logs"

test: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(PROFILE) --workspace --all-targets -- -D warnings
	$(CARGO) test $(PROFILE) --workspace

# Everything that needs a GPU, on a machine that has one.
gpu-test: setup
	$(CARGO) test $(PROFILE) --workspace -- --ignored --test-threads=1
