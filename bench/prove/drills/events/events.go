// Package events is `prove drills events`: it sends events as phones do (phone.go), under kills (kill.go; ledger.go keeps the acknowledged events) and in
// large numbers (fill.go; keyring.go has the keys, meter.go and expense.go measure), and reads back what is stored (archive.go).
package events

// Command sends the events of phones, and treats control as a black box.
type Command struct {
	Kill killCommand `cmd:"" help:"Kill controls while phones send events, and look for every acknowledged event."`
	Fill fillCommand `cmd:"" help:"Store many events as fast as possible, and export them."`
}
