//! Kernels as sources, for backends that compile them: WGSL for Vulkan, OpenCL C for OpenCL.
//!
//! A [`Recipe`](recipe::Recipe) says of a kernel what both languages share: in which numbers it
//! computes, its scalars, its grid and, for kernels that work element by element, the statement
//! itself. What a language needs for arguments of certain dtypes is a [`Spec`](spec::Spec);
//! [`wgsl`](crate::wgsl) and [`opencl`](crate::opencl) turn one into a source by putting accessors
//! of the arguments (`load_0`, `store_1`, `place_1`, ...) in front of texts that use them.

pub(crate) mod kind;
pub(crate) mod recipe;
pub(crate) mod spec;
pub(crate) mod variant;

use std::sync::Arc;

use syncline_device::{Backend, KernelBuilder, KernelSource};
use syncline_tensor::View;

use crate::{Parameter, opencl, wgsl};
use recipe::Recipe;
use spec::{Language, Spec};

/// Adds the sources of the built-in kernel `name` to its implementations.
pub(crate) fn attach(
    mut builder: KernelBuilder,
    name: &'static str,
    parameters: &[Parameter],
) -> KernelBuilder {
    let parameters: Arc<[Parameter]> = parameters.into();
    for (backend, language) in
        [(Backend::Vulkan, Language::Wgsl), (Backend::OpenCl, Language::OpenClC)]
    {
        let recipe = Recipe::of(name);
        let (chosen, generated) = (parameters.clone(), parameters.clone());
        builder = builder.variants(
            backend,
            move |views: &[View]| {
                let variant = variant::of(views, &chosen, &recipe)?;
                Spec::new(language, &recipe, &variant, &chosen)?;
                Ok(variant::pack(&variant))
            },
            move |packed| {
                let variant = variant::unpack(packed, generated.len());
                let spec = Spec::new(language, &recipe, &variant, &generated)
                    .expect("a variant that was chosen");
                source(language, name, &recipe, &spec)
            },
        );
    }
    builder
}

fn source(language: Language, name: &str, recipe: &Recipe, spec: &Spec) -> KernelSource {
    let (backend, text) = match language {
        Language::Wgsl => (Backend::Vulkan, wgsl::text(name, recipe, spec)),
        Language::OpenClC => (Backend::OpenCl, opencl::text(name, recipe, spec)),
    };
    let types: Vec<_> = spec.scalars.iter().map(|scalar| scalar.given).collect();
    // SAFETY: the text goes by the shapes that it is told, within one another as the kernel's
    // signature demands; tests run every kernel on calls that the signature lets pass, and on
    // others.
    let source = unsafe { KernelSource::native(backend, text, &entry(name), recipe.group) };
    source.grid(recipe.grid).scalars(types)
}

/// The function of a kernel in its source: not the name alone, which may be that of a function of
/// the language.
pub(crate) fn entry(name: &str) -> String {
    format!("kernel_{name}")
}
