// Package clicks records the responses of an edge to short URLs in a log and ships the log to Postgres. It promises that each click whose
// response left the process is counted exactly once, whichever process is killed when, and that recording a click takes no lock, does no
// I/O and allocates nothing. control/internal/clicks/README.md is the protocol. It does not count or report anything itself.
package clicks

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"deeplink/edge/internal/header"
	"deeplink/shared/click"
)

// Visit is what the handler knows of a click in addition to the request.
type Visit struct {
	// Outcome is the response. 0: it is not recorded.
	Outcome click.Outcome
	// OrgKey is the key of the link's organization.
	OrgKey [4]byte
	// Link is the id of the link; zero if Outcome is click.Unknown.
	Link [16]byte
	// Client is the address of the client, in the form of clientip.Key.
	Client [16]byte
	// Agent is what [Recorder.Agent] returned for the request.
	Agent *Value
}

// Recorder records clicks. Record is safe for concurrent use. The zero value records nothing.
type Recorder struct {
	on      bool
	options Options

	// current is the segment that takes records. Its slots are reserved without a lock; mu is for what replaces it.
	current atomic.Pointer[segment]
	full    atomic.Bool // there is no other segment: clicks are counted
	mu      sync.Mutex
	active  *log
	spare   *segment // begun, and next to become current
	// storeMu is for the files. It is taken before mu, and no click waits for it.
	storeMu sync.Mutex
	store   *store
	ship    *shipper
	older   []*log // logs of earlier processes, and of this one before it was forgotten
	uses    uint64

	clock     clock
	salts     [4]atomic.Pointer[salt] // by day modulo 4
	agents    cache
	referrers cache
	countries *countries

	counting atomic.Pointer[generation]

	counts  counts
	durable atomic.Bool
	wake    chan struct{} // a segment was used up
}

// On reports whether clicks are recorded.
func (r *Recorder) On() bool { return r.on }

// shardCount is the number of shards of the counters of metrics.
const shardCount = 8

// Record records a click. When it returns, the click survives a kill of the process. It must be called before the response is handed to
// the operating system.
func (r *Recorder) Record(ctx *fasthttp.RequestCtx, request *header.Fields, v *Visit) {
	if !r.on || v.Outcome == 0 {
		return
	}
	// Set field by field: a literal is built elsewhere and copied, and the processor waits for its small stores before the copy.
	var c record
	c.outcome, c.ruleset = v.Outcome, click.Ruleset
	c.orgKey, c.link = v.OrgKey, v.Link
	c.evidence = request.Evidence | v.Agent.evidence |
		click.Accept(request.Accept) | v.Agent.brandHint(request.Brands) | click.PlatformHint(request.Platform)
	c.language, _ = click.Language(request.Language)
	if r.countries != nil && v.Outcome != click.Unknown {
		c.country = r.countryOf(ctx, v)
	}
	if len(request.Referer) == 0 {
		r.finish(&c, v, ctx.Time(), nil)
	} else if from := r.referrers.get(request.Referer); from != nil {
		r.finish(&c, v, ctx.Time(), from)
	} else {
		r.finishUncached(&c, v, ctx.Time(), request.Referer)
	}
}

func (r *Recorder) countryOf(ctx *fasthttp.RequestCtx, v *Visit) [2]byte {
	var named []byte
	if r.countries.header != nil && r.countries.trusts(ctx) {
		named = ctx.Request.Header.PeekCanonical(r.countries.header)
	}
	return r.countries.of(named, &v.Client)
}

// finishUncached is finish for a referrer that is not in the cache.
func (r *Recorder) finishUncached(c *record, v *Visit, now time.Time, referer []byte) {
	var from Value
	var host [click.MaxReferrer]byte
	from.text = host[:0]
	r.referrers.read(&from, referer)
	r.finish(c, v, now, &from)
}

// finish classifies the click and stores it in the current segment, or counts it if there is none. from is nil if there is no referrer.
func (r *Recorder) finish(c *record, v *Visit, now time.Time, from *Value) {
	agent := v.Agent
	c.reason = click.Classify(c.evidence, agent.facts)
	at := r.clock.at(now)
	var flags uint8
	withAgent := c.evidence&click.EvidenceNoAgent == 0
	if v.Outcome == click.Unknown {
		// It is only counted: none of its details is kept.
		withAgent, from, c.language = false, nil, [3]byte{}
	} else {
		flags = hasLink
		if salt := r.saltFor(at); salt != nil {
			flags |= hasVisitor
			c.visitor = salt.visitor(v.OrgKey, &v.Client, agent.digest)
		}
		if from != nil && len(from.text) == 0 {
			from = nil
		}
	}
	for {
		s := r.current.Load()
		if s == nil {
			break
		}
		use := s.use.Load()
		c.flags, c.agent, c.referrer = flags, 0, 0
		if withAgent {
			if c.agent = agent.reference(s, use); c.agent == 0 {
				c.flags |= hasOtherAgent
			}
		}
		if from != nil {
			c.referrer = from.reference(s, use)
		}
		if i := s.reserve(1); i >= 0 {
			if s.use.Load() != use {
				// The segment was used up, shipped and begun again in between. Its texts are others now.
				c.agent, c.referrer = 0, 0
				if withAgent {
					c.flags |= hasOtherAgent
				}
			}
			// The seal is loaded after the slot was reserved: a record behind the boundary of a batch is not from before its seal.
			c.at = max(at, r.clock.seal.Load())
			if c.at != at && dayOf(c.at) != dayOf(at) {
				c.flags &^= hasVisitor // the next day has another salt
				c.visitor = 0
			}
			c.write(s.slot(i), s.seed.Load())
			r.counts.record(i, c.reason.Class())
			return
		}
		if r.full.Load() || !r.replace(s) {
			break
		}
	}
	r.count(c, at)
}

// count counts the click in the counters.
func (r *Recorder) count(c *record, at int64) {
	class := c.reason.Class()
	r.counts.record(int(at), class)
	for {
		g := r.counting.Load()
		if g == nil {
			break
		}
		g.users.Add(1)
		if r.counting.Load() != g {
			g.users.Add(-1) // it is being shipped
			continue
		}
		// As for records: the seal is loaded after this click has entered the generation.
		stored := g.add(c, class, max(at, r.clock.seal.Load()))
		g.users.Add(-1)
		if !stored {
			break
		}
		if c.outcome != click.Unknown {
			r.counts.unrecorded.Add(1)
		}
		return
	}
	r.counts.lost.Add(1)
}

// replace makes the spare segment the current one if used is still the current one. It returns false if there is no spare one.
func (r *Recorder) replace(used *segment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current.Load() != used || used.next.Load() < int64(used.slots) {
		return true
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	if r.spare == nil {
		r.full.Store(true)
		return false
	}
	r.openSpare()
	return true
}

// openSpare makes the spare segment the current one. The caller holds mu.
func (r *Recorder) openSpare() {
	s := r.spare
	r.spare = nil
	r.active.segments = append(r.active.segments, s)
	*r.active.counters.opened()++
	r.current.Store(s)
	s.open()
	r.full.Store(false)
}

func (r *Recorder) saltFor(at int64) *salt {
	today := dayOf(at)
	s := r.salts[uint64(today)%uint64(len(r.salts))].Load()
	if s == nil || s.day != today {
		return nil
	}
	return s
}
