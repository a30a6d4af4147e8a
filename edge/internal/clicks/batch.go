package clicks

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
)

const (
	// otherAgent is the id of all agents that the dictionary has no room for.
	otherAgent = 0
	// agentAge is how long the id of an agent is kept after its last use. Control deletes agents that were not used for a day.
	agentAge = 6 * time.Hour
	// maxAgents bounds the ids that are kept.
	maxAgents = 1 << 16
	// agentsPerQuery bounds the agents of one query.
	agentsPerQuery = 1000
)

type agentID struct {
	id   int32
	used time.Time
}

// batch is what one transaction sends.
type batch struct {
	first  int64 // milliseconds
	clicks int64
	rows   []row
	counts map[count]int64
}

type row struct {
	record
	agent    string
	referrer []byte
	agentID  int32
}

// read collects the clicks of a batch from its segments and counters.
func (s *shipper) read(ctx context.Context, l *log, b boundary) (*batch, error) {
	out := &batch{first: math.MaxInt64, counts: make(map[count]int64)}
	texts := make(map[*segment]map[uint32]string)
	text := func(seg *segment, ref uint32) string {
		known := texts[seg]
		if known == nil {
			known = make(map[uint32]string)
			texts[seg] = known
		}
		value, ok := known[ref]
		if !ok {
			value = string(seg.textAt(int(ref) - 1))
			known[ref] = value
		}
		return value
	}
	// The time of a click that was recorded before the clock was set is not known better than that it is before the registration.
	at := func(at int64) int64 {
		if b.early {
			return min(at, b.through-1)
		}
		return at
	}
	err := s.each(l, b.from, b.to, func(seg *segment, i int) (int, error) {
		kind, n := seg.kindAt(i)
		if kind != kindClick {
			return n, nil
		}
		var r row
		r.read(seg.slot(i))
		r.at = at(r.at)
		if r.outcome.String() == "" || r.reason.Class() == 0 {
			return n, nil
		}
		out.first = min(out.first, r.at)
		out.clicks++
		if r.outcome == click.Unknown {
			out.counts[count{outcome: r.outcome, class: r.reason.Class(), orgKey: r.orgKey, quarter: r.at - r.at%quarter}]++
			return n, nil
		}
		if r.record.agent != 0 {
			if r.agent = text(seg, r.record.agent); r.agent == "" {
				r.flags |= hasOtherAgent // its text is damaged
			}
		}
		if r.record.referrer != 0 {
			r.referrer = seg.textAt(int(r.record.referrer) - 1)
		}
		out.rows = append(out.rows, r)
		return n, nil
	})
	if err != nil {
		return nil, err
	}
	if b.epoch != 0 {
		if g := l.generation(b.epoch); g != nil {
			counted := make(map[count]int64)
			g.read(counted, int(b.first), int(b.end))
			for c, n := range counted {
				c.quarter = at(c.quarter+quarter-1) / quarter * quarter
				out.counts[c] += n
				out.clicks += n
			}
			out.first = min(out.first, at(*g.first()))
		}
	}
	if out.first == math.MaxInt64 {
		out.first = b.through
	}
	return out, s.identify(ctx, out.rows)
}

const (
	insertAgents = `insert into click_agents (agent) select unnest($1::text[]) on conflict do nothing`
	selectAgents = `select id, agent from click_agents where agent = any($1)`
)

// identify finds the ids of the agents of rows in the dictionary, and adds those that are new.
func (s *shipper) identify(ctx context.Context, rows []row) error {
	now := time.Now()
	if len(s.agents) > maxAgents {
		clear(s.agents)
	}
	for agent, known := range s.agents {
		if now.Sub(known.used) > agentAge {
			delete(s.agents, agent)
		}
	}
	missing := make(map[string]string) // by the text as recorded: the text as stored
	for i := range rows {
		if agent := rows[i].agent; agent != "" {
			if _, known := s.agents[agent]; !known {
				missing[agent] = storable(agent)
			}
		}
	}
	ids := make(map[string]int32, len(missing))
	texts := make([]string, 0, min(len(missing), agentsPerQuery))
	query := func() error {
		if len(texts) == 0 {
			return nil
		}
		if err := s.exec(ctx, insertAgents, texts); err != nil {
			return fmt.Errorf("add agents: %w", err)
		}
		found, err := s.conn.Query(ctx, selectAgents, texts)
		if err != nil {
			return fmt.Errorf("find agents: %w", err)
		}
		var id int32
		var text string
		_, err = pgx.ForEachRow(found, []any{&id, &text}, func() error { ids[text] = id; return nil })
		texts = texts[:0]
		if err != nil {
			return fmt.Errorf("find agents: %w", err)
		}
		return nil
	}
	for _, text := range missing {
		if texts = append(texts, text); len(texts) == agentsPerQuery {
			if err := query(); err != nil {
				return err
			}
		}
	}
	if err := query(); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if r.agent == "" {
			continue
		}
		known, ok := s.agents[r.agent]
		if !ok {
			id, found := ids[missing[r.agent]]
			if !found {
				r.agentID = otherAgent // the dictionary is full for today; it may have room tomorrow
				continue
			}
			known.id = id
		}
		known.used = now
		s.agents[r.agent] = known
		r.agentID = known.id
	}
	return nil
}

// storable returns a text that Postgres accepts.
func storable(agent string) string {
	agent = strings.ReplaceAll(strings.ToValidUTF8(agent, "\uFFFD"), "\x00", "\uFFFD")
	for len(agent) > click.MaxAgent {
		_, size := utf8.DecodeLastRuneInString(agent)
		agent = agent[:len(agent)-size]
	}
	return agent
}

const (
	copyClicks = `copy clicks (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language,
		referrer, visitor) from stdin binary`
	copyCounts = `copy click_counts (log, sequence, org_key, link_id, outcome, class, quarter, clicks) from stdin binary`
)

// copy inserts the rows of the batch.
func (b *batch) copy(ctx context.Context, conn *pgx.Conn, log uuid.UUID, sequence int32) error {
	if len(b.rows) > 0 {
		w := newCopier(len(b.rows) * 200)
		for i := range b.rows {
			b.rows[i].encode(w, log, sequence, int32(i+1))
		}
		if _, err := conn.PgConn().CopyFrom(ctx, w.end(), copyClicks); err != nil {
			return fmt.Errorf("copy clicks: %w", err)
		}
	}
	if len(b.counts) == 0 {
		return nil
	}
	w := newCopier(len(b.counts) * 100)
	for c, n := range b.counts {
		w.fields(8)
		w.bytes(log[:])
		w.int32(sequence)
		w.bytes(c.orgKey[:])
		w.optional(c.link[:], c.link != uuid.UUID{})
		w.text(c.outcome.String())
		w.text(c.class.String())
		w.time(c.quarter)
		w.int64(n)
	}
	if _, err := conn.PgConn().CopyFrom(ctx, w.end(), copyCounts); err != nil {
		return fmt.Errorf("copy counts: %w", err)
	}
	return nil
}

func (r *row) encode(w *copier, log uuid.UUID, sequence, ordinal int32) {
	w.fields(16)
	w.bytes(log[:])
	w.int32(sequence)
	w.int32(ordinal)
	w.time(r.at)
	w.bytes(r.orgKey[:])
	w.optional(r.link[:], r.flags&hasLink != 0)
	w.text(r.outcome.String())
	w.text(r.reason.Class().String())
	w.text(r.reason.String())
	w.int16(int16(r.ruleset))
	w.int16(int16(r.evidence))
	if r.agent != "" || r.flags&hasOtherAgent != 0 {
		w.int32(r.agentID)
	} else {
		w.null()
	}
	w.optional(r.country[:], r.country != [2]byte{})
	w.optional(bytes.TrimRight(r.language[:], "\x00"), r.language != [3]byte{})
	w.optional(r.referrer, len(r.referrer) > 0)
	if r.flags&hasVisitor != 0 {
		w.int64(int64(r.visitor))
	} else {
		w.null()
	}
}

// copier writes the binary format of COPY (PostgreSQL, COPY, "Binary Format"), in which no value needs to be escaped.
type copier struct{ b []byte }

func newCopier(size int) *copier {
	w := &copier{make([]byte, 0, size+32)}
	w.b = append(w.b, "PGCOPY\n\xff\r\n\x00"...)
	w.b = append(w.b, make([]byte, 8)...)
	return w
}

func (w *copier) end() *bytes.Reader {
	w.b = binary.BigEndian.AppendUint16(w.b, math.MaxUint16)
	return bytes.NewReader(w.b)
}

func (w *copier) fields(n uint16) { w.b = binary.BigEndian.AppendUint16(w.b, n) }
func (w *copier) null()           { w.b = binary.BigEndian.AppendUint32(w.b, math.MaxUint32) }

func (w *copier) length(n int) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(n)) }

func (w *copier) bytes(value []byte) {
	w.length(len(value))
	w.b = append(w.b, value...)
}

func (w *copier) text(value string) {
	w.length(len(value))
	w.b = append(w.b, value...)
}

func (w *copier) optional(value []byte, present bool) {
	if !present {
		w.null()
		return
	}
	w.bytes(value)
}

func (w *copier) int16(n int16) {
	w.length(2)
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(n))
}

func (w *copier) int32(n int32) {
	w.length(4)
	w.b = binary.BigEndian.AppendUint32(w.b, uint32(n))
}

func (w *copier) int64(n int64) {
	w.length(8)
	w.b = binary.BigEndian.AppendUint64(w.b, uint64(n))
}

// epoch is where Postgres counts times from.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// time writes a timestamptz, which is in microseconds, from milliseconds since 1970.
func (w *copier) time(at int64) { w.int64((at - epoch) * 1000) }
