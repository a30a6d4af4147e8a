package main

import (
	"iter"
	"math/rand/v2"
	"slices"
	"time"
)

// chosen is a fault with its choices made.
type chosen struct {
	nemesis
	attack attack
}

// wave is faults that are made at the same time, and how long there is none after them.
type wave struct {
	attacks []chosen
	pause   time.Duration
}

func choose(r *rig, random *rand.Rand, n nemesis) chosen {
	return chosen{nemesis: n, attack: n.draw(r, random)}
}

// together reports whether a fault can be made at the same time as others: they are of another kind, and need nothing that it
// needs.
func (c chosen) together(others []chosen) bool {
	return !slices.ContainsFunc(others, func(other chosen) bool {
		return c.name == other.name || slices.ContainsFunc(c.attack.claims, func(claim string) bool {
			return slices.Contains(other.attack.claims, claim)
		})
	})
}

// companions is how many faults are tried as the second of a pair.
const companions = 10

// endless are faults at random, alone or in pairs.
func endless(r *rig, random *rand.Rand) iter.Seq[wave] {
	all := nemeses()
	return func(yield func(wave) bool) {
		for {
			w := wave{
				attacks: []chosen{choose(r, random, pick(random, all))},
				pause:   between(random, 300*time.Millisecond, 2*time.Second),
			}
			// Half of them get company, if some is found that goes with them.
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

const (
	// listed is the longest hold of a fault when each is made once, brief that of a broken link: all of them must end in time.
	listed = 5 * lease / 4
	brief  = 3 * lease / 5
	// breath is the pause between them.
	breath = 300 * time.Millisecond
)

// eachOnce are all faults in a random order: broken links in pairs, all else alone.
func eachOnce(r *rig, random *rand.Rand) iter.Seq[wave] {
	all := nemeses()
	var waves []wave
	for _, i := range random.Perm(len(all)) {
		c := choose(r, random, all[i])
		if !c.onLink {
			c.attack.hold = min(c.attack.hold, listed)
			waves = append(waves, wave{attacks: []chosen{c}, pause: breath})
			continue
		}
		c.attack.hold = min(c.attack.hold, brief)
		half := slices.IndexFunc(waves, func(w wave) bool {
			return len(w.attacks) == 1 && w.attacks[0].onLink && c.together(w.attacks)
		})
		if half < 0 {
			waves = append(waves, wave{attacks: []chosen{c}, pause: breath})
		} else {
			waves[half].attacks = append(waves[half].attacks, c)
		}
	}
	return slices.Values(waves)
}
