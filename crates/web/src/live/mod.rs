//! The live view.
