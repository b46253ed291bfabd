//! `--transport mpi`: ranks that mpirun starts, where the program was built with MPI, and what to
//! install where not.

use crate::support::run;

const FROM: &str = "examples/reshard/train-tp2pp2.toml";
const TO: &str = "examples/reshard/serve-tp4.toml";

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_the_program_says_what_to_install() {
    for args in [
        &["reshard", "refit", "--from", FROM, "--to", TO, "--transport", "mpi"][..],
        &["reshard", "run", "in", "out", "--to", "hf", "--transport", "mpi"],
    ] {
        let line = run(args).refusal();
        assert!(line.contains("openmpi-bin") && line.contains("--features mpi"), "{line}");
    }
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::path::Path;

    use syncline_mpi::RankLauncher;
    use syncline_testing::Rng;

    use super::{FROM, TO, run};
    use crate::support::{directory, write_checkpoint};

    /// The program as `ranks` ranks; standard output and error of all of them.
    fn mpirun(ranks: usize, args: &[&str]) -> (bool, String, String) {
        let launcher = RankLauncher::find().expect("a launcher beside the library");
        let mut command = launcher.command(ranks);
        command.arg(env!("CARGO_BIN_EXE_syncline")).args(args);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    #[test]
    fn ranks_refit_and_the_first_speaks() {
        let args = ["reshard", "refit", "--from", FROM, "--to", TO, "--transport", "mpi"];
        let (success, stdout, stderr) = mpirun(4, &args);
        assert!(success, "{stdout}{stderr}");
        assert_eq!(stdout.matches("every element is right").count(), 1, "{stdout}");
        assert!(stdout.starts_with("4 PEs over mpi: "), "{stdout}");
        let (success, _, stderr) = mpirun(2, &args);
        assert!(!success && stderr.contains("mpirun -n 4 syncline"), "{stderr}");
    }

    #[test]
    fn ranks_convert_what_threads_convert() {
        let folder = directory("reshard_mpi");
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let mut rng = Rng::new(3);
        let tensors = [("up", [64, 96]), ("down", [96, 64])].map(|(part, shape)| {
            let bytes = (0..64 * 96 * 4).map(|_| rng.next_u64() as u8).collect();
            (format!("model.layers.0.mlp.{part}_proj.weight"), "F32", shape, bytes)
        });
        write_checkpoint(&folder.join("in"), &tensors);
        let (from, to) = (path("in"), path("out"));
        let args = ["reshard", "run", &from, &to, "--to", "tp=4", "--transport", "mpi"];
        let (success, stdout, stderr) = mpirun(3, &args);
        assert!(success, "{stdout}{stderr}");
        assert_eq!(stdout.matches("files    4 written").count(), 1, "{stdout}");
        run(&["reshard", "verify", &from, &to]).success();
        // What one rank cannot do ends them all, with the reason.
        let (success, _, stderr) = mpirun(3, &args);
        assert!(!success && stderr.contains("already exists"), "{stderr}");
    }
}
