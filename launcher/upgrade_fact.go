package launcher

// upgradeFactV1 turns a fact of version 1 of the journal into one of version 2.
func upgradeFactV1(fact map[string]any) {
	inSeconds(within(fact, "progress"), "longest")
}
