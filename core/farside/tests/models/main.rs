//! Protocols of `farside` under the model checker. The other integration tests are in the package
//! `farside-tests`.

mod outgoing;
