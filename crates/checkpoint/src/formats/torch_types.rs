//! What pickles of torch may name: element types, storages, containers, and objects that are passed
//! over.

use syncline_tensor::Dtype;

use crate::element::ElementType;

/// Functions that make tensors, and what they take.
pub(super) const REBUILD_TENSOR: [&str; 3] = [
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
];
/// Functions that wrap a tensor, which is their first argument.
pub(super) const REBUILD_PARAMETER: [&str; 3] = [
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
    "torch.nn.parameter.Parameter",
];
/// Makes a tensor of a class by another function and its arguments.
pub(super) const REBUILD_TYPED: &str = "torch._tensor._rebuild_from_type_v2";

/// Makes other tensors, which are refused where they are met: sparse, quantized, without memory.
const REBUILD_OTHERS: &str = "torch._utils._rebuild_";

/// Storages of bytes, whose element type the tensor says.
pub(super) const UNTYPED: [&str; 2] = ["torch.storage.UntypedStorage", "torch.UntypedStorage"];

/// Elements by the names of their types and of their storages.
const ELEMENTS: [(&str, &str, ElementType); 20] = [
    ("float64", "Double", ElementType::Known(Dtype::F64)),
    ("float32", "Float", ElementType::Known(Dtype::F32)),
    ("float16", "Half", ElementType::Known(Dtype::F16)),
    ("bfloat16", "BFloat16", ElementType::Known(Dtype::BF16)),
    ("int64", "Long", ElementType::Known(Dtype::I64)),
    ("int32", "Int", ElementType::Known(Dtype::I32)),
    ("int16", "Short", ElementType::Known(Dtype::I16)),
    ("int8", "Char", ElementType::Known(Dtype::I8)),
    ("uint8", "Byte", ElementType::Known(Dtype::U8)),
    ("uint16", "UInt16", ElementType::Known(Dtype::U16)),
    ("uint32", "UInt32", ElementType::Known(Dtype::U32)),
    ("uint64", "UInt64", ElementType::Known(Dtype::U64)),
    ("bool", "Bool", ElementType::Known(Dtype::Bool)),
    ("complex64", "ComplexFloat", ElementType::Known(Dtype::C64)),
    ("float8_e4m3fn", "Float8_e4m3fn", ElementType::Known(Dtype::F8E4M3)),
    ("float8_e5m2", "Float8_e5m2", ElementType::Known(Dtype::F8E5M2)),
    ("float8_e8m0fnu", "Float8_e8m0fnu", ElementType::Known(Dtype::F8E8M0)),
    ("float8_e4m3fnuz", "Float8_e4m3fnuz", ElementType::Opaque("F8_E4M3FNUZ", 8)),
    ("float8_e5m2fnuz", "Float8_e5m2fnuz", ElementType::Opaque("F8_E5M2FNUZ", 8)),
    // Two elements in a byte; torch counts bytes, as plans do.
    ("float4_e2m1fn_x2", "Float4_e2m1fn_x2", ElementType::Opaque("F4", 4)),
];

/// The element type with the name `torch.float32` and the like.
pub(super) fn element_of_dtype(name: &str) -> Option<ElementType> {
    let name = name.strip_prefix("torch.")?;
    ELEMENTS.iter().find(|(dtype, ..)| *dtype == name).map(|(.., element)| *element)
}

/// torch's name of an element type, if it has one.
pub(super) fn dtype_of_element(element: ElementType) -> Option<&'static str> {
    ELEMENTS.iter().find(|(.., known)| *known == element).map(|(dtype, ..)| *dtype)
}

/// torch's name of the storage of an element type.
pub(super) fn storage_of_element(element: ElementType) -> Option<&'static str> {
    ELEMENTS.iter().find(|(.., known)| *known == element).map(|(_, storage, _)| *storage)
}

/// The element type of the storage with the name `torch.FloatStorage` and the like.
pub(super) fn element_of_storage(name: &str) -> Option<ElementType> {
    let name = name.rsplit('.').next()?.strip_suffix("Storage")?;
    ELEMENTS.iter().find(|(_, storage, _)| *storage == name).map(|(.., element)| *element)
}

/// Classes and functions whose objects are containers or are passed over; never called.
const NAMES: [&str; 34] = [
    "collections.OrderedDict",
    "collections.defaultdict",
    "collections.Counter",
    "collections.deque",
    "builtins.dict",
    "builtins.list",
    "builtins.tuple",
    "builtins.set",
    "builtins.frozenset",
    "builtins.int",
    "builtins.float",
    "builtins.str",
    "builtins.bool",
    "builtins.bytes",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.slice",
    "builtins.object",
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "_codecs.encode",
    "argparse.Namespace",
    "types.SimpleNamespace",
    "pathlib.PosixPath",
    "pathlib.Path",
    "pathlib._local.PosixPath",
    "datetime.datetime",
    "datetime.timedelta",
    "_io.BytesIO",
    "io.BytesIO",
    "torch.Size",
    "torch.device",
    "torch.Tensor",
    "torch.serialization._get_layout",
];

/// Packages whose objects are arguments, numbers and states beside the tensors: passed over.
const PACKAGES: [&str; 9] = [
    "numpy.",
    "megatron.",
    "transformer_engine.",
    "torch.distributed.checkpoint.",
    "torch.distributed._shard.checkpoint.",
    "torch.distributed._shard.metadata.",
    "torch.optim.",
    "transformers.",
    "accelerate.",
];

/// Returns `true` if a pickle may name this.
pub(super) fn is_allowed(name: &str) -> bool {
    NAMES.contains(&name)
        || REBUILD_TENSOR.contains(&name)
        || REBUILD_PARAMETER.contains(&name)
        || name == REBUILD_TYPED
        || name.starts_with(REBUILD_OTHERS)
        || (name.starts_with("torch.") && name.ends_with("Storage"))
        || is_dtype(name)
        || PACKAGES.iter().any(|package| name.starts_with(package))
}

/// Returns `true` for `torch.float32`, and for types that torch has and plans do not.
pub(super) fn is_dtype(name: &str) -> bool {
    let others = ["torch.complex32", "torch.complex128", "torch.qint8", "torch.quint8"];
    element_of_dtype(name).is_some() || others.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_do_something_are_not_allowed() {
        for name in ["os.system", "builtins.eval", "builtins.exec", "torch.load", "torch.hub.load"]
        {
            assert!(!is_allowed(name), "{name}");
        }
        assert!(!is_allowed("torch.storage._load_from_bytes"));
        assert_eq!(
            element_of_storage("torch.BFloat16Storage"),
            Some(ElementType::Known(Dtype::BF16))
        );
        assert_eq!(element_of_dtype("torch.float8_e5m2"), Some(ElementType::Known(Dtype::F8E5M2)));
        assert_eq!(element_of_dtype("torch.float128"), None);
    }
}
