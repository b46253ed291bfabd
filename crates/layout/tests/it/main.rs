//! Integration tests of layouts and plans.
//!
//! | file | what goes there |
//! | --- | --- |
//! | `arrays` | moving real arrays by a plan, and what each shard must then hold: the oracle of all others |
//! | `cases` | the layout pairs shipped with reference figures |
//! | `hostile` | layouts of any text |
//! | `mesh_form` | what the mesh form compiles to |
//! | `meshes` | mesh layouts for the others to draw from |
//! | `properties` | inverse, composition, every part agrees with the whole |
//! | `refusals` | what must not be planned, and what the error says |
//! | `schedules` | slots, batches and rounds |
//! | `transfers_json` | the plan as JSON |

mod arrays;
mod cases;
mod hostile;
mod mesh_form;
mod meshes;
mod properties;
mod refusals;
mod schedules;
mod transfers_json;
