use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use syncline_front::{ErrorKind, RecordTasks, RunTasks, Serial, Submit, Tensor, bind};
use syncline_runtime::UnifiedExecutor;

use super::{executor, stream};

#[derive(Debug)]
struct Singular(usize);

impl fmt::Display for Singular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} is zero", self.0)
    }
}

impl std::error::Error for Singular {}

/// A program whose body fails.
fn fails(to: &impl Submit, x: &Tensor<f64>) -> syncline_front::Result<()> {
    to.task("factor", x.update()).run(|_| Err(Singular(3)))?;
    Ok(())
}

#[test]
fn a_failed_body_is_one_error_in_every_mode() {
    let executor = executor();
    let x = Tensor::from(vec![1.0]);
    let serial = fails(&Serial, &x).expect_err("the body failed");
    let scope = executor.scope(|s| fails(s, &x)).expect_err("the body failed");
    let plan = executor.record(|g| fails(g, &g.input("X", [1])?)).expect("records");
    let plan = plan.compile().expect("compiles");
    let plan = plan.run(bind! { X: &mut vec![1.0] }).expect_err("the body failed");
    let live = stream();
    fails(&live, &Tensor::from(vec![1.0])).expect("submitted");
    let live = syncline_front::Error::from(live.wait_all().expect_err("the body failed"));
    for error in [serial, scope, plan, live] {
        assert_eq!(error.kind(), ErrorKind::Task, "{error}");
        assert!(error.to_string().contains("factor"), "{error}");
        assert!(error.to_string().contains("column 3 is zero"), "{error}");
    }
}

#[test]
fn a_scope_ends_its_borrows_also_when_it_panics() {
    let executor = executor();
    let mut numbers = vec![0.0; 1 << 12];
    let mut kept = None;
    let scope = AssertUnwindSafe(|| {
        executor.scope(|s| {
            let x = s.borrow_mut(&mut numbers, [1 << 12])?;
            for _ in 0..50 {
                s.task("add", x.update()).run(|mut x| x.apply(|x| x + 1.0))?;
            }
            kept = Some(x);
            if s.stream().options().workers > 0 {
                panic!("a mistake of the caller");
            }
            Ok(())
        })
    });
    catch_unwind(scope).expect_err("the panic goes on");
    let first = numbers[0];
    assert!(numbers.iter().all(|x| *x == first), "no task runs any more");
    let kept = kept.expect("set before the panic");
    let error = kept.to_vec().expect_err("the borrow has ended");
    assert!(error.to_string().contains("lent"), "{error}");
    let later = stream().task("late", kept.update()).run(|_| ()).expect_err("ended");
    assert!(later.to_string().contains("lent"), "{later}");
    Serial.task("late", kept.update()).run(|_| ()).expect_err("ended");
}

#[test]
fn devices_that_a_mode_lacks_are_refused_by_name() {
    let x = Tensor::from(vec![1.0f32]);
    let error = stream().task("far", x.update()).on("vulkan:0").run(|_| ()).expect_err("no GPU");
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().contains("record"), "{error}");
    let executor = executor();
    let recorded = executor.record(|g| {
        g.task("far", g.input::<f32>("X", [1])?.update()).on("vulkan:0").run(|_| ())?;
        Ok(())
    });
    let error = recorded.expect_err("a closure").to_string();
    assert!(error.contains("closure") && error.contains("cpu:0"), "{error}");
    let nothing = UnifiedExecutor::new();
    let recorded = nothing.record(|g| {
        g.task("any", x.update()).run(|_| ())?;
        Ok(())
    });
    assert!(recorded.expect_err("no device").to_string().contains("no device"));
}

#[test]
fn bindings_are_checked_by_name_type_and_shape() {
    let executor = executor();
    let plan = executor.record(|g| {
        g.task("use", g.input::<f32>("X", [2, 2])?.update()).run(|_| ())?;
        Ok(())
    });
    let plan = plan.expect("records").compile().expect("compiles");
    let tensor = |shape: [usize; 2]| Tensor::<f32>::zeros(shape).expect("small");
    let transposed = tensor([2, 2]).transpose(0, 1).expect("two dimensions");
    let refused = [
        plan.run(bind! { Y: &tensor([2, 2]) }),
        plan.run(bind! {}),
        plan.run(bind! { X: &tensor([1, 4]) }),
        plan.run(bind! { X: &transposed }),
        plan.run(bind! { X: &mut vec![0.0f32; 3] }),
        plan.run(bind! { X: &mut vec![0u8; 16] }),
    ];
    for (at, error) in refused.into_iter().enumerate() {
        let error = error.expect_err("refused");
        assert!(error.to_string().contains(['X', 'Y']), "{at}: {error}");
    }
    plan.run(bind! { X: &tensor([2, 2]) }).expect("fits");
    plan.run(bind! { X: &mut vec![0.0f32; 4] }).expect("fits");
}

#[test]
fn shapes_are_refused_where_they_are_made() {
    let x = Tensor::<f32>::zeros([4, 6]).expect("small");
    let refused = [
        x.slice(2, 0..1).err(),
        x.slice(0, 3..5).err(),
        x.reshape([5, 5]).err(),
        x.transpose(0, 1).expect("fine").reshape([24]).err(),
        x.broadcast([2, 4, 5]).err(),
        x.tiles([2]).err(),
        x.tiles([0, 1]).err(),
        Tensor::<f32>::zeros([usize::MAX, 2]).err(),
    ];
    for (at, error) in refused.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Shape), "{at}");
    }
    let error = Serial.task("w", x.broadcast([2, 4, 6]).expect("fits").update()).run(|_| ());
    assert!(error.expect_err("read only").to_string().contains("share bytes"));
}
