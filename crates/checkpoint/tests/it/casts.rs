//! Casts that would part values from their scales or leave floats as they were, and what
//! `config.json` says.

use std::fs;

use syncline_checkpoint::{CheckpointError, ConversionOptions};
use syncline_tensor::Dtype;
use syncline_testing::Rng;

use crate::models::{convert, directory, llama, refusal, tensor, try_convert, write_model};

#[test]
fn element_types_are_converted_whole_or_not_at_all() {
    let folder = directory("casts");
    let rng = &mut Rng::new(3);
    let mut options = ConversionOptions::default();
    options.dtype = Some(Dtype::BF16);
    let weight = "model.layers.0.mlp.up_proj.weight";
    for (at, (element, beside, config, words)) in [
        ("F8_E4M3", Some("weight_scale_inv"), "{}", "its scales are in `model.layers.0.mlp.up_"),
        ("F8_E4M3", Some("weight_scale"), "{}", "its scales are in"),
        ("F8_E5M2", Some("scale"), "{}", "its scales are in"),
        ("F8_E4M3", None, r#"{"quantization_config": {"quant_method": "fp8"}}"#, "is quantized"),
        ("F64", None, "{}", "tensor `model.layers.0.mlp.up_proj.weight` of F64 cannot"),
        ("F8_E8M0", None, "{}", "no conversion to bf16"),
        ("F4", None, "{}", "no conversion to bf16"),
        ("F8_E4M3", None, "{}", ""),
        ("F16", Some("weight_scale"), "{}", ""),
        ("I32", Some("scales"), r#"{"quantization_config": {}}"#, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let from = folder.join(format!("{at}/in"));
        let mut tensors = vec![tensor(rng, weight, element, &[4, 8])];
        let scale = beside.map(|leaf| format!("model.layers.0.mlp.up_proj.{leaf}"));
        tensors.extend(scale.map(|name| tensor(rng, &name, "F32", &[1, 1])));
        write_model(&from, &tensors, config);
        if words.is_empty() {
            try_convert(&from, &from.with_file_name("out"), "hf", options.clone()).unwrap();
            continue;
        }
        let said = refusal(&from, "hf", options.clone());
        assert!(said.contains(words) && said.contains("leave the element types"), "{said}");
        // As they are, they go anywhere.
        convert(&from, &from.with_file_name("out"), "hf", Default::default());
        convert(&from, &from.with_file_name("copies"), "dp=2", Default::default());
    }
}

/// Where the configuration does not tell whether values have scales, they are not cast.
#[test]
fn fp8_is_not_cast_where_its_scales_are_unknown() {
    let folder = directory("casts_unknown");
    let mut options = ConversionOptions::default();
    options.dtype = Some(Dtype::BF16);
    let weight = "model.layers.0.mlp.up_proj.weight";
    let tensors = [tensor(&mut Rng::new(5), weight, "F8_E4M3", &[4, 8])];
    for (at, config) in [None, Some("{"), Some("[]"), Some("\u{0}")].into_iter().enumerate() {
        let from = folder.join(format!("{at}/in"));
        write_model(&from, &tensors, config.unwrap_or("{}"));
        if config.is_none() {
            fs::remove_file(from.join("config.json")).unwrap();
        }
        let said = refusal(&from, "hf", options.clone());
        assert!(said.contains("whether it has scales is not known"), "{said}");
        convert(&from, &from.with_file_name("out"), "hf", Default::default());
    }
}

#[test]
fn the_configuration_says_what_the_tensors_are() {
    let folder = directory("config_dtype");
    let config = r#"{"num_attention_heads": 4, "torch_dtype": "float32", "text_config": {"dtype": "float32"}}"#;
    write_model(&folder.join("in"), &llama(&mut Rng::new(4), 1, 0), config);
    let mut options = ConversionOptions::default();
    options.dtype = Some(Dtype::F16);
    convert(&folder.join("in"), &folder.join("out"), "hf", options.clone());
    let said = fs::read_to_string(folder.join("out/config.json")).unwrap();
    assert_eq!(said.matches("float16").count(), 2, "{said}");
    assert!(!said.contains("float32"), "{said}");
    convert(&folder.join("in"), &folder.join("same"), "hf", Default::default());
    assert_eq!(fs::read_to_string(folder.join("same/config.json")).unwrap(), config);
    // What cannot be read cannot be made true.
    let from = folder.join("broken/in");
    write_model(&from, &llama(&mut Rng::new(4), 1, 0), "{");
    let error = try_convert(&from, &from.with_file_name("out"), "hf", options).unwrap_err();
    assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
    assert!(!from.with_file_name("out").exists());
}
