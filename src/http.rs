//! The HTTP edge: the front door that owns the clients' sockets, tiny_http behind it, and the routes.
//!
//! Outside in: [`door`] accepts, [`client`] serves one client with [`head`]'s strict parsing, [`guard`] decides by the head
//! who may ask, with or without a [`token`], [`upstream`] carries whole requests to tiny_http, [`crew`] has the handler
//! threads, which answer a [`guest`] at its own [`wire`]; [`server`] puts these together. Then [`routes`] picks an action:
//! [`tasks`] or [`admin`]; for those the [`clerk`] answers who only asks for a row, and [`waiters`] who waits for a task's end.
//! Nothing here decides what may happen to a task.

pub mod admin;
pub mod batch;
pub mod caps;
pub mod clerk;
pub mod client;
pub mod closing;
pub mod crew;
pub mod door;
pub mod exchange;
pub mod guard;
pub mod guest;
pub mod head;
pub mod openapi;
pub mod porter;
pub mod prefer;
pub mod private_dir;
pub mod problem;
pub mod quota;
pub mod reply;
pub mod routes;
pub mod server;
pub mod shown;
pub mod submission;
pub mod tasks;
pub mod token;
pub mod upstream;
pub mod waiters;
pub mod wire;

pub use caps::DoorLimits;
pub use exchange::{Exchange, Reply};
pub use guard::Guard;
pub use routes::Office;
pub use server::Server;
