package memory

// A Card is a size of GPU that people have.
type Card struct {
	// Gigabytes is what it is sold as; Name the cards of that size, the smallest first.
	Gigabytes int    `json:"gigabytes"`
	Name      string `json:"name"`
	// Bytes is what PyTorch says of the smallest one's capacity: less than what it is sold as,
	// by what error correction and the driver keep.
	Bytes int64 `json:"bytes"`
	// Fits: the bound fits, with what is outside the allocator; May: the mean does.
	Fits bool `json:"fits"`
	May  bool `json:"may_fit"`
}

// sold are the cards, with the capacity that PyTorch's message names as one of them runs out of
// memory ("GPU 0 has a total capacity of …"), in hundredths of a GiB.
var sold = []struct {
	gigabytes  int
	name       string
	hundredths int64
}{
	{24, "L4, A10, RTX 3090 and 4090", 2203},
	{40, "A100", 3938},
	{48, "A40, L40S, RTX A6000", 4434},
	{80, "A100, H100", 7910},
	{94, "H100 NVL", 9302},
	{141, "H200", 13980},
	{192, "B200, MI300X", 17835},
}

// cards are the sizes, and whether a plan fits on them.
func cards(mean, bound, outside int64) []Card {
	var all []Card
	for _, s := range sold {
		bytes := s.hundredths * (1 << 30) / 100
		all = append(all, Card{s.gigabytes, s.name, bytes, bound+outside <= bytes, mean+outside <= bytes})
	}
	return all
}

// Smallest is the smallest card on which the bound fits; false where none is large enough.
func (e Estimated) Smallest() (Card, bool) {
	for _, c := range e.Cards {
		if c.Fits {
			return c, true
		}
	}
	return Card{}, false
}

// SmallestCard is the smallest card with room for so many bytes, what lies outside the
// allocator included; false where none is large enough.
func SmallestCard(need int64) (Card, bool) { return Estimated{Cards: cards(need, need, 0)}.Smallest() }
