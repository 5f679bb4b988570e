pub struct Diagram;
