//! The part that turns a recording into a voice: samples to the mel frames that stand in front of what is spoken.

use super::ExportedVoice;
use super::speakers::GIVEN;
use crate::checkpoint::voice::VoiceFile;
use crate::feed::MelExtractor;
use anyhow::Result;
use host::onnx::{Graph, Kind, Port, Value};
use tch::Device;

impl ExportedVoice {
    /// Samples of any length, at the voice's rate and loudness, to the frames that the other file takes.
    pub fn reference_graph(&self) -> Result<Vec<u8>> {
        let config = self.config();
        let extractor = MelExtractor::new(&config.model, config.data.sample_rate, Device::Cpu);
        let (samples, mut g) = (Value::named("samples"), Graph::default());
        let mel = crate::catch(|| extractor.graph(&samples, &mut g))?;
        let kept = VoiceFile::graph(&mel, config, &mut g);
        let normalised = self.stats.graph_apply(&kept, &mut g);
        let voice = g.name(&normalised, GIVEN);
        let inputs = vec![Port::new(&samples, Kind::F32, ["samples".into()])];
        let outputs = vec![Port::new(&voice, Kind::F32, ["reference".into(), config.model.n_mels.into()])];
        let metadata = [("sample_rate", config.data.sample_rate.to_string())];
        Ok(g.finish("reference", inputs, outputs, &metadata))
    }
}
