//! What may go to other threads, and what they may share: all of it. Compiling is the test.

use syncline_reshard::transport::{
    Arrival, Endpoint, Failure, FreeSlot, Header, Session, Shape, Slots, Ticket, Transport, Wait,
    Window, WindowId,
};
use syncline_reshard::*;

fn is_shared<T: Send + Sync + ?Sized>() {}

#[test]
fn public_types_are_send_and_sync() {
    is_shared::<(Layout, LayoutBuilder, LayoutFile, Mesh, MeshLayout, TensorLayout, TensorSpec)>();
    is_shared::<(TransferPlan, PlanOptions, TransferOp, Traffic, PairTraffic, Schedule, Batch)>();
    is_shared::<(Refit, Shards, Sources<'_>, Targets<'_>, Target<'_, '_>)>();
    is_shared::<(Destination, Reading<'_>, Versions, Moved, Progress)>();
    is_shared::<(CopyService<'_>, ServiceOptions, PipelineExecutor<'_>, PipelineLanes)>();
    is_shared::<(ServiceError, ReshardError, BindError, DestinationError, Failure)>();
    is_shared::<(Endpoint, Session<'_>, FreeSlot, Arrival, Window, WindowId)>();
    is_shared::<(Wait<'_>, Ticket, Header, Shape)>();
    is_shared::<dyn Transport>();
    is_shared::<dyn Slots>();
}
