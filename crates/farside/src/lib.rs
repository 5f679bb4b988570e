//! farside
