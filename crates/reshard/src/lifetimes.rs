//! What must not compile: guards, bindings, claims and sessions that outlive what they stand for.
//!
//! Each example fails for the error that it names; a compiler that checks the code
//! (`RUSTC_BOOTSTRAP=1`) checks that too.

/// A reading may not outlive its destination.
/// ```compile_fail,E0515
/// fn keep<'a>(destination: syncline_reshard::Destination) -> syncline_reshard::Reading<'a> {
///     destination.read().unwrap()
/// }
/// ```
/// Nor a tensor its reading.
/// ```compile_fail,E0515
/// fn keep<'a>(reading: syncline_reshard::Reading<'a>) -> &'a [u8] {
///     reading.tensor("w").unwrap()
/// }
/// ```
struct Readings;

/// Sources may not outlive the memory that is bound.
/// ```compile_fail,E0597
/// fn bind(refit: &syncline_reshard::Refit) {
///     let mut sources = syncline_reshard::Sources::new(refit);
///     {
///         let bytes = vec![0; 4];
///         sources.bind(refit, "w", &bytes).unwrap();
///     }
///     sources.clone();
/// }
/// ```
/// Memory that is bound as a target is not read meanwhile.
/// ```compile_fail,E0502
/// fn bind(refit: &syncline_reshard::Refit) {
///     let mut bytes = vec![0; 4];
///     let mut targets = syncline_reshard::Targets::new(refit);
///     targets.bind(refit, "w", &mut bytes).unwrap();
///     assert_eq!(bytes[0], 0);
///     targets.bind(refit, "v", &mut []).unwrap();
/// }
/// ```
/// Nor bound twice.
/// ```compile_fail,E0499
/// fn bind(refit: &syncline_reshard::Refit) {
///     let mut bytes = vec![0; 4];
///     let mut targets = syncline_reshard::Targets::new(refit);
///     targets.bind(refit, "v", &mut bytes).unwrap();
///     targets.bind(refit, "w", &mut bytes).unwrap();
/// }
/// ```
/// Memory that requests are to receive into lives until they have run.
/// ```compile_fail,E0597
/// fn submit(service: &mut syncline_reshard::CopyService) {
///     let mut requests = service.requests();
///     {
///         let mut bytes = vec![0; 4];
///         requests.submit_recv(1, None, &mut bytes).unwrap();
///     }
///     requests.run().unwrap();
/// }
/// ```
struct Bindings;

/// Nothing moves data after its refit was finished.
/// ```compile_fail,E0505
/// use syncline_transport::{Session, Wait};
/// fn run(session: Session<'_>, wait: Wait<'_>) {
///     let executor = syncline_reshard::PipelineExecutor::new(&session);
///     session.finish(&wait).unwrap();
///     executor.separate_lanes(true);
/// }
/// ```
struct Sessions;
