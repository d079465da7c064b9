package memory

// Capacity is what the allocator may hold on the device with a plan, in bytes: Room, and what
// it cannot give of that. It is the figure that people know: a ceiling, or what a card has
// left. 0 where it is not known.
func (f *Predictor) Capacity(p RankPlan) int64 { return int64(float64(f.Room(p))*f.overhead(p) + .5) }
