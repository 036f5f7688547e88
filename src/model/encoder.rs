//! Text encoder and duration predictor. After Matcha-TTS §2.2 (Mehta et al. 2024): convolutional prenet, rotary
//! transformer with convolutional feed-forward, projection to the mean mel frame of each token. Both know the language and
//! no speaker.

use super::graph::GraphWriter;
use super::layers::{Attention, Conv, FIXED, GraphRotary, LayerNorm, Linear, Rotary, embedded, embedding};
use super::track::Track;
use host::config;
use host::onnx::Value;
use tch::nn::Path;
use tch::{Kind, Tensor};
use torchx::fused::{self, Dropout, LaidWeights, Taps};
use torchx::stream::beside;

pub struct Encoder {
    embedding: Tensor,
    languages: Tensor,
    prenet: Vec<(Conv, LayerNorm)>,
    blocks: Vec<Block>,
    norm: LayerNorm,
    /// To the mean mel frame, and to content for the decoder.
    out: Linear,
    widths: [i64; 2],
    head_dim: i64,
    dropout: f64,
}

struct Block {
    attention_norm: LayerNorm,
    attention: Attention,
    feed_forward_norm: LayerNorm,
    widen: Conv,
    narrow: Conv,
}

/// What is known of each token.
pub struct Encoded {
    /// `[text, text_dim]`
    pub hidden: Tensor,
    /// `[text, n_mels + decoder_dim]`: mean mel frame, and content for the decoder. One table, so that laying it along
    /// the frames is one lookup.
    pub table: Tensor,
    widths: [i64; 2],
}

impl Encoded {
    /// Mean frames (f32) and content, of `table` or of rows taken from it.
    pub fn split(&self, table: &Tensor) -> (Tensor, Tensor) {
        let [mean, content] = table.split_with_sizes(self.widths, 1).try_into().expect("two widths");
        (mean.to_kind(Kind::Float), content)
    }
}

impl Encoder {
    pub fn new(path: Path, config: &config::Model, vocab_size: i64, languages: i64) -> Self {
        let dim = config.text_dim;
        let prenet = |i| (Conv::new(&path / "prenet" / i, dim, dim, 5), LayerNorm::new(&path / "prenet_norm" / i, dim));
        let widths = [config.n_mels, config.decoder_dim];
        Encoder {
            embedding: embedding(&path, vocab_size, dim),
            languages: embedding(&(&path / "languages"), languages, dim),
            prenet: (0..2).map(prenet).collect(),
            blocks: (0..config.text_layers).map(|i| Block::new(&path / "block" / i, config)).collect(),
            norm: LayerNorm::new(&path / "norm", dim),
            out: Linear::new(&path / "out", dim, widths.iter().sum()),
            widths,
            head_dim: dim / config.text_heads,
            dropout: config.dropout_share(),
        }
    }

    /// # Shapes
    /// - tokens: `[text]`; languages: `[utterances]`
    pub fn forward(&self, tokens: &Tensor, languages: &Tensor, track: &Track, train: bool) -> Encoded {
        let kind = track.mask.kind();
        let scale = (self.embedding.size()[1] as f64).sqrt();
        // Many small kernels, which run beside the first of the text's.
        let laid = beside(tokens.device(), "weights", || train.then(|| self.laid_weights(kind))).expect(FIXED);
        let spoken = embedded(&self.languages, languages, scale, kind);
        let mut x = embedded(&self.embedding, tokens, scale, kind) + track.owners.spread(&spoken);
        let dropout = dropout(self.dropout, &x, train);
        let _laid = laid.join().expect(FIXED);
        for (conv, norm) in &self.prenet {
            x = conv_norm(&x, conv, norm, true, &dropout, track);
        }
        let rotary = Rotary::new(track, self.head_dim);
        for block in &self.blocks {
            x = block.forward(&x, &rotary, track, &dropout);
        }
        let [hidden, _] = self.norm.forward_beside(&x);
        Encoded { table: self.out.forward(&hidden), hidden, widths: self.widths }
    }

    fn laid_weights(&self, kind: Kind) -> LaidWeights {
        let prenet = self.prenet.iter().map(|(conv, _)| (conv.weights().weight, Taps::Within));
        let blocks = self.blocks.iter().flat_map(|Block { widen, narrow, .. }| {
            [(widen.weights().weight, Taps::Within), (narrow.weights().weight, Taps::Apart)]
        });
        LaidWeights::new(prenet.chain(blocks), kind).expect(FIXED)
    }

    /// Hidden states (`[text, text_dim]`) and content for the decoder (`[text, decoder_dim]`) of tokens (`[text]`) of one
    /// language, by its number.
    pub fn graph(&self, tokens: &Value, language: i64, g: &mut GraphWriter) -> (Value, Value) {
        let Encoder { embedding, languages, prenet, blocks, norm, out, widths, head_dim, dropout: _ } = self;
        let scale = (embedding.size()[1] as f64).sqrt();
        let spoken = embedding * scale + languages.get(language) * scale;
        g.folded(languages);
        let table = g.weight_of(embedding, &spoken);
        let mut x = g.gather(&table, tokens);
        for (conv, norm) in prenet {
            let local = conv.graph(&x, g);
            let local = g.op("Relu", &[&local], vec![]);
            let local = norm.graph(&local, g);
            x = g.add(&x, &local);
        }
        let rows = g.len(&x, 0);
        let rotary = GraphRotary::new(&rows, *head_dim, g);
        for block in blocks {
            x = block.graph(&x, &rotary, g);
        }
        let hidden = norm.graph(&x, g);
        let content = out.graph_last(&hidden, widths[1], g);
        (hidden, content)
    }
}

impl Block {
    fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.text_dim;
        Block {
            attention_norm: LayerNorm::new(&path / "attention_norm", dim),
            attention: Attention::new(&path / "attention", dim, config.text_heads),
            feed_forward_norm: LayerNorm::new(&path / "feed_forward_norm", dim),
            widen: Conv::new(&path / "widen", dim, 4 * dim, 3),
            narrow: Conv::new(&path / "narrow", 4 * dim, dim, 3),
        }
    }

    fn forward(&self, x: &Tensor, rotary: &Rotary, track: &Track, dropout: &Dropout) -> Tensor {
        let [normal, x] = self.attention_norm.forward_beside(x);
        let mixed = self.attention.forward(&normal, rotary, track);
        let x = fused::residual(&x, &mixed, dropout).expect(FIXED);
        let Block { feed_forward_norm: norm, widen, narrow, .. } = self;
        let (norm, widen, narrow) = (norm.weights(), widen.weights(), narrow.weights());
        fused::feed_forward(&x, norm, widen, narrow, dropout, &track.spans).expect(FIXED)
    }

    fn graph(&self, x: &Value, rotary: &GraphRotary, g: &mut GraphWriter) -> Value {
        let Block { attention_norm, attention, feed_forward_norm, widen, narrow } = self;
        let mixed = attention_norm.graph(x, g);
        let mixed = attention.graph(&mixed, rotary, g);
        let x = g.add(x, &mixed);
        let wide = feed_forward_norm.graph(&x, g);
        let wide = widen.graph(&wide, g);
        let wide = g.op("Relu", &[&wide], vec![]);
        let narrow = narrow.graph(&wide, g);
        g.add(&x, &narrow)
    }
}

/// Logarithm of each token's expected frame count, from hidden states that it does not train.
pub struct DurationPredictor {
    layers: Vec<(Conv, LayerNorm)>,
    out: Linear,
    dropout: f64,
}

impl DurationPredictor {
    pub fn new(path: Path, config: &config::Model) -> Self {
        let dim = config.text_dim;
        let layer = |i| (Conv::new(&path / "conv" / i, dim, dim, 3), LayerNorm::new(&path / "norm" / i, dim));
        DurationPredictor {
            layers: (0..2).map(layer).collect(),
            out: Linear::new(&path / "out", dim, 1),
            dropout: config.dropout_share(),
        }
    }

    /// `[text, 1]`, f32.
    pub fn forward(&self, hidden: &Tensor, track: &Track, train: bool) -> Tensor {
        let mut x = hidden.detach();
        let dropout = dropout(self.dropout, &x, train);
        for (conv, norm) in &self.layers {
            x = conv_norm(&x, conv, norm, false, &dropout, track);
        }
        self.out.forward(&x).to_kind(Kind::Float)
    }

    /// `[text, 1]`
    pub fn graph(&self, hidden: &Value, g: &mut GraphWriter) -> Value {
        let DurationPredictor { layers, out, dropout: _ } = self;
        let mut x = hidden.clone();
        for (conv, norm) in layers {
            let local = conv.graph(&x, g);
            let local = g.op("Relu", &[&local], vec![]);
            x = norm.graph(&local, g);
        }
        out.graph_full_precision(&x, g)
    }
}

fn dropout(share: f64, like: &Tensor, train: bool) -> Dropout {
    Dropout::new(if train { share } else { 0.0 }, like.device()).expect(FIXED)
}

/// `dropout(norm(relu(conv(x))))`, `add`ed to `x` or alone.
fn conv_norm(x: &Tensor, conv: &Conv, norm: &LayerNorm, add: bool, dropout: &Dropout, track: &Track) -> Tensor {
    fused::conv_norm(x, conv.weights(), norm.weights(), add, dropout, &track.spans).expect(FIXED)
}

/// Half the deviance of Poisson counts, in nats for each frame: lowest where `exp(predicted)` is the *expected*
/// duration, so that speech comes out as long as it was recorded. Squared errors of logarithms are lowest at the
/// geometric mean, which is shorter. `[text, 1]` each, f32; 0 frames in gaps.
pub fn duration_loss(predicted: &Tensor, frames: &Tensor, mask: &Tensor) -> Tensor {
    fused::count_loss(predicted, frames, mask).expect(FIXED)
}
