package faults

import (
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"deeplink/bench/prove/fleet"
)

// chosen is a fault with its choices made.
type chosen struct {
	nemesis
	attack attack
}

// wave is a set of faults that are injected at the same time, and the pause after them.
type wave struct {
	attacks []chosen
	pause   time.Duration
}

func choose(r *rig, random *rand.Rand, n nemesis) chosen {
	return chosen{nemesis: n, attack: n.draw(r, random)}
}

// together reports whether a fault can be injected at the same time as others: it is of another kind, and shares no claim with them.
func (c chosen) together(others []chosen) bool {
	return !slices.ContainsFunc(others, func(other chosen) bool {
		return c.name == other.name || slices.ContainsFunc(c.attack.claims, func(claim string) bool {
			return slices.Contains(other.attack.claims, claim)
		})
	})
}

// companions is how many faults are tried as the second of a pair.
const companions = 10

// endless returns random faults, alone or in pairs.
func endless(r *rig, random *rand.Rand, all []nemesis) iter.Seq[wave] {
	return func(yield func(wave) bool) {
		for {
			w := wave{
				attacks: []chosen{choose(r, random, pick(random, all))},
				pause:   fleet.Between(random, 300*time.Millisecond, 2*time.Second),
			}
			// Half of them are paired, if a compatible fault is found.
			for tries := random.IntN(2) * companions; tries > 0 && len(w.attacks) < 2; tries-- {
				if second := choose(r, random, pick(random, all)); second.together(w.attacks) {
					w.attacks = append(w.attacks, second)
				}
			}
			if !yield(w) {
				return
			}
		}
	}
}

// inTurn returns all faults one after the other, for a number of rounds.
func inTurn(r *rig, random *rand.Rand, all []nemesis, rounds int) iter.Seq[wave] {
	return func(yield func(wave) bool) {
		for range rounds {
			for _, n := range all {
				w := wave{attacks: []chosen{choose(r, random, n)}, pause: fleet.Between(random, fleet.Lease, 2*fleet.Lease)}
				if !yield(w) {
					return
				}
			}
		}
	}
}

// When each fault is injected once, the run must end in time. crowds is how many faults of a kind run at the same time, holds the longest
// duration of each kind; a pause separates the waves. Other faults would disturb an ambush, which may need a lease and some time to show.
var (
	crowds = map[kind]int{ambush: 1, onProcess: 2, onLink: 3}
	holds  = map[kind]time.Duration{ambush: 5 * fleet.Lease / 4, onProcess: 11 * fleet.Lease / 10, onLink: fleet.Lease / 2}
)

const breath = 200 * time.Millisecond

// eachOnce returns all faults in a random order, each together with compatible faults of its kind.
func eachOnce(r *rig, random *rand.Rand, all []nemesis) iter.Seq[wave] {
	var waves []wave
	for _, i := range random.Perm(len(all)) {
		c := choose(r, random, all[i])
		c.attack.hold = min(c.attack.hold, holds[c.kind])
		room := slices.IndexFunc(waves, func(w wave) bool {
			return w.attacks[0].kind == c.kind && len(w.attacks) < crowds[c.kind] && c.together(w.attacks)
		})
		if room < 0 {
			waves = append(waves, wave{attacks: []chosen{c}, pause: breath})
		} else {
			waves[room].attacks = append(waves[room].attacks, c)
		}
	}
	return slices.Values(waves)
}
