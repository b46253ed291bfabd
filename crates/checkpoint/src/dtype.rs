//! Conversions of element types: what they must not lose, and what `config.json` says afterwards.

use std::collections::HashMap;

use serde_json::Value;
use syncline_copy::convert::is_supported;
use syncline_tensor::Dtype;

use crate::element::ElementType;
use crate::error::CheckpointError;
use crate::model::Model;
use crate::source::Checkpoint;

/// Refuses a conversion to `dtype` that would leave floats as they are, or part values from their
/// scales.
pub(crate) fn check_dtype(
    source: &Checkpoint,
    dtype: Dtype,
    model: &Model,
) -> Result<(), CheckpointError> {
    let mut scales: HashMap<&str, &str> = HashMap::new();
    for tensor in source.layout().tensors() {
        let (module, leaf) = tensor.name().rsplit_once('.').unwrap_or(("", tensor.name()));
        if leaf.contains("scale") {
            scales.insert(module, tensor.name());
        }
    }
    for (index, tensor) in (0u32..).zip(source.layout().tensors()) {
        let element = source.element(index);
        let refused = |cause: String| {
            let tensor = tensor.name().to_owned();
            Err(CheckpointError::NotConvertible { tensor, element: element.name(), cause })
        };
        let known = match element {
            ElementType::Known(known) if !is_float(known) || known == dtype => continue,
            ElementType::Known(known) if is_supported(known, dtype) => known,
            _ => return refused(format!("there is no conversion to {dtype}")),
        };
        if !matches!(known, Dtype::F8E4M3 | Dtype::F8E5M2) {
            continue;
        }
        let module = tensor.name().rsplit_once('.').map_or("", |(module, _)| module);
        match scales.get(module) {
            Some(scale) => return refused(format!("its scales are in `{scale}`")),
            None => match &model.is_quantized {
                Ok(false) => {}
                Ok(true) => return refused("config.json says that it is quantized".to_owned()),
                Err(cause) => {
                    return refused(format!("whether it has scales is not known ({cause})"));
                }
            },
        }
    }
    Ok(())
}

fn is_float(dtype: Dtype) -> bool {
    use Dtype::{BF16, F8E4M3, F8E5M2, F8E8M0, F16, F32, F64};
    matches!(dtype, F8E4M3 | F8E5M2 | F8E8M0 | F16 | BF16 | F32 | F64)
}

/// `config`, the text of a `config.json`, for tensors of `dtype`: what it says of element types
/// becomes true.
pub(crate) fn config_with_dtype(config: &str, dtype: Dtype) -> Result<String, serde_json::Error> {
    let mut root: Value = serde_json::from_str(config)?;
    if !set_dtype(&mut root, torch_name(dtype)) {
        return Ok(config.to_owned());
    }
    Ok(serde_json::to_string_pretty(&root)? + "\n")
}

/// Returns `true` if anything was changed.
fn set_dtype(value: &mut Value, name: &str) -> bool {
    let Value::Object(members) = value else { return false };
    let mut is_changed = false;
    for (key, value) in members {
        match value {
            Value::String(known) if key == "torch_dtype" || key == "dtype" => {
                is_changed |= known != name;
                *known = name.to_owned();
            }
            // A quantizer's own types are not those of the tensors.
            _ if key != "quantization_config" => is_changed |= set_dtype(value, name),
            _ => {}
        }
    }
    is_changed
}

fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "float16",
        Dtype::BF16 => "bfloat16",
        Dtype::F32 => "float32",
        Dtype::F64 => "float64",
        Dtype::F8E4M3 => "float8_e4m3fn",
        Dtype::F8E5M2 => "float8_e5m2",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_say_what_tensors_are() {
        let config = r#"{"torch_dtype": "float32", "z": 1e-05, "a": 2,
            "text_config": {"dtype": "float32", "ids": [1]},
            "quantization_config": {"dtype": "float32"}, "dtype": 4}"#;
        let said = config_with_dtype(config, Dtype::BF16).unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["torch_dtype"], "bfloat16");
        assert_eq!(said["text_config"]["dtype"], "bfloat16");
        assert_eq!(said["quantization_config"]["dtype"], "float32");
        assert_eq!((&said["dtype"], &said["z"]), (&Value::from(4), &Value::from(1e-05)));
        let plain = "{\"hidden_size\":4}";
        assert_eq!(config_with_dtype(plain, Dtype::BF16).unwrap(), plain);
        assert!(config_with_dtype("{", Dtype::BF16).is_err());
    }
}
