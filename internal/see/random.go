package see

// random is a seeded source of numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). It is
// here because D1 keeps every other source out.
type random uint64

// newRandom returns the source of one stream of a seed.
func newRandom(seed, stream uint64) *random {
	r := random(seed)
	r = random(r.next() ^ stream*0xd1342543de82ef95)
	return &r
}

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit is in (0, 1).
func (r *random) unit() float64 { return (float64(r.next()>>11) + 0.5) / (1 << 53) }

// below is in [0, n); n must be positive.
func (r *random) below(n int64) int64 { return int64(r.next() % uint64(n)) }
