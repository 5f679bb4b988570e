//! Protocols of `farside-kit` under the model checker. The other integration tests are in the
//! package `farside-tests`.

mod combining;
mod pipe;
