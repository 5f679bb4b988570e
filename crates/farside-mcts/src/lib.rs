//! farside-mcts
