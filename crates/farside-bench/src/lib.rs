//! farside-bench
