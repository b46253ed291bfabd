use syncline_front::{RunTasks, Submit};
use syncline_runtime::UnifiedExecutor;

fn main() {
    let executor = UnifiedExecutor::new();
    let _ = executor.scope(|s| {
        let mut numbers = vec![1.0f32];
        let x = s.borrow_mut(&mut numbers, [1])?;
        s.task("one", x.update()).run(|mut x| x.fill(1.0))?;
        Ok(())
    });
}
