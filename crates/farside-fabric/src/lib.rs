//! farside-fabric
