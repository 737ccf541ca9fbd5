//! Generates the configurations and templates of the test adapters.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    mixer_adapter_build::adapter("protos/recorded.proto");
    mixer_adapter_build::adapter("protos/probe.proto");
    mixer_adapter_build::adapter("protos/blocker.proto");
    mixer_adapter_build::adapter("protos/bystander.proto");
    mixer_adapter_build::adapter("protos/careless.proto");
    mixer_adapter_build::template("protos/ownergen.proto");
    mixer_adapter_build::template("../../examples/tagcheck/template.proto");
    numbered_templates(Path::new(&env::var_os("OUT_DIR").unwrap_or_default()))
}

/// Generates as many templates as an adapter may have: `numberedaa` to `numberedbf`, as
/// names have letters only.
fn numbered_templates(out_dir: &Path) -> io::Result<()> {
    for number in 0..32 {
        let letter = |index: u8| char::from(b'a' + index);
        let name = format!("numbered{}{}", letter(number / 26), letter(number % 26));
        let file = out_dir.join(format!("{name}.proto"));
        let proto = format!(
            "syntax = \"proto3\";\n\
             package {name};\n\
             import \"mixer/adapter/model/v1beta1/extensions.proto\";\n\
             option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_CHECK;\n\
             message Template {{ string text = 1; }}\n"
        );
        // A file that is written again would let every build run this one again.
        if fs::read_to_string(&file).ok().as_ref() != Some(&proto) {
            fs::write(&file, proto)?;
        }
        mixer_adapter_build::template(file);
    }
    Ok(())
}
