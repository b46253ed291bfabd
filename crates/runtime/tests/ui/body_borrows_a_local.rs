//! A task runs after the call that submits it: its body owns what it uses.
use syncline_runtime::stream::Task;

fn make() -> Task {
    let mut count = 0;
    Task::new("counts").body(|_| count += 1)
}

fn main() {
    make();
}
