//! farside-sys
