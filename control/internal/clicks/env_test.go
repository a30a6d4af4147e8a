package clicks

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// testEnv is a database with clicks. The edge's role writes them, as the README says.
type testEnv struct {
	t           testing.TB
	db          *testkit.Database
	owner, edge *pgx.Conn
	control     *pgxpool.Pool
	retention   time.Duration
	metrics     *Metrics
	shipped     []shippedClick
	counted     []countedClicks
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	db := testkit.NewDatabase(t)
	w := &testEnv{t: t, db: db, owner: testkit.Connect(t, db.URL), edge: testkit.Connect(t, db.EdgeURL), retention: 720 * time.Hour, metrics: NewMetrics()}
	w.control = w.open(8)
	return w
}

func (w *testEnv) open(connections int) *pgxpool.Pool {
	w.t.Helper()
	pool, err := store.OpenPool(w.db.ControlURL, connections)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(pool.Close)
	return pool
}

func (w *testEnv) rollUps() *RollUps {
	return NewRollUps(w.control, w.retention, w.metrics, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func (w *testEnv) housekeeping() *Housekeeping {
	return NewHousekeeping(w.control, w.retention, w.metrics, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func (w *testEnv) reader() *Reader {
	return NewReader(w.open(RequestConnections), w.retention, func(orgKey, host, code string) string {
		return catalog.ShortURL("https://go.example.com", orgKey, host, code)
	})
}

// rollUp counts everything that was shipped.
func (w *testEnv) rollUp() {
	w.t.Helper()
	if err := w.rollUps().Round(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *testEnv) exec(on *pgx.Conn, sql string, arguments ...any) {
	w.t.Helper()
	if _, err := on.Exec(context.WithoutCancel(w.t.Context()), sql, arguments...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](w *testEnv, sql string, arguments ...any) (value T) {
	w.t.Helper()
	if err := w.owner.QueryRow(w.t.Context(), sql, arguments...).Scan(&value); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// organization creates an organization with links.
func (w *testEnv) organization(key string, links int) (o Organization, ids []uuid.UUID) {
	w.t.Helper()
	s := store.New(w.control, "https://go.example.com")
	scale := catalog.Scale
	created, _, err := s.CreateOrganization(w.t.Context(), store.OperatorActor("test"), store.NewOrganization{OrgKey: key, Name: key, Plan: &scale, AppConfig: &catalog.AppConfig{FallbackURL: ptr("https://acme.example/")}})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range links {
		link, _, err := s.CreateLink(w.t.Context(), store.OperatorActor("test"), created.ID, store.Unconditional, catalog.Link{Path: fmt.Sprint("/", i), ShortCode: fmt.Sprint("code", i), IsActive: true})
		if err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, uuid.MustParse(link.ID))
	}
	return Organization{created.ID, created.OrgKey}, ids
}

func ptr[T any](v T) *T { return &v }

// The agents of test clicks, and the class of a click with each of them.
var testAgents = []struct {
	text  string
	class click.Class
}{
	{"Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1", click.Human},
	{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36", click.Human},
	{"facebookexternalhit/1.1", click.PreviewBot},
	{"curl/8.0", click.Bot},
	// Only the public list has it.
	{"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/78.0.3904.130 Electron/7.3.2 Safari/537.36 PingdomTMS/2020.2", click.Bot},
	{"Mozilla/5.0 ChatGPT-User/1.0", click.Assistant},
}

// browserEvidence is that of a browser's GET.
const browserEvidence = click.EvidenceLanguage | click.EvidenceHTML

type shippedClick struct {
	orgKey   string
	link     uuid.UUID
	at       time.Time
	outcome  click.Outcome
	agent    int // in testAgents
	head     bool
	country  *string
	language *string
	referrer *string
	visitor  *int64
	late     bool
}

// class is the class that the roll-up must give to the click.
func (c shippedClick) class() click.Class {
	if c.head {
		return click.Head
	}
	return testAgents[c.agent].class
}

type countedClicks struct {
	orgKey  string
	link    *uuid.UUID
	outcome click.Outcome
	class   click.Class
	quarter time.Time
	clicks  int64
	late    bool
}

// testLog is a log that ships clicks.
type testLog struct {
	w        *testEnv
	slot     string
	id       uuid.UUID
	sequence int
	through  time.Time
}

// log registers an open log with this through.
func (w *testEnv) log(slot string, through time.Time) *testLog {
	w.t.Helper()
	l := &testLog{w: w, slot: slot, id: uuid.New(), through: through}
	w.exec(w.edge, `insert into click_logs (log, slot, durable, through) values ($1, $2, true, $3)`, l.id, slot, through)
	return l
}

func (w *testEnv) agentID(agent int) (id int32) {
	w.t.Helper()
	w.exec(w.edge, `insert into click_agents (agent) values ($1) on conflict do nothing`, testAgents[agent].text)
	if err := w.edge.QueryRow(w.t.Context(), `select id from click_agents where agent = $1`, testAgents[agent].text).Scan(&id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// ship sends one batch in one transaction, as an edge does. through zero does not advance the log.
func (l *testLog) ship(through time.Time, clicks []shippedClick, counted ...countedClicks) {
	l.w.t.Helper()
	l.sequence++
	l.send(l.sequence, through, clicks, counted)
	for _, c := range clicks {
		c.late = c.at.Before(l.through)
		l.w.shipped = append(l.w.shipped, c)
	}
	l.w.counted = append(l.w.counted, counted...)
	if !through.IsZero() {
		l.through = through
	}
}

func (l *testLog) send(sequence int, through time.Time, clicks []shippedClick, counted []countedClicks) {
	w, ctx := l.w, context.Background()
	w.t.Helper()
	agents := map[int]int32{}
	first, total := time.Time{}, int64(0)
	for _, c := range clicks {
		if first.IsZero() || c.at.Before(first) {
			first = c.at
		}
		if _, known := agents[c.agent]; !known {
			agents[c.agent] = w.agentID(c.agent)
		}
		total++
	}
	for _, c := range counted {
		if first.IsZero() || c.quarter.Before(first) {
			first = c.quarter
		}
		total += c.clicks
	}
	tx, err := w.edge.Begin(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	tag, err := tx.Exec(ctx, `insert into click_batches (slot, log, sequence, first_at, clicks) values ($1, $2, $3, $4, $5) on conflict do nothing`, l.slot, l.id, sequence, first, total)
	if err != nil {
		w.t.Fatal(err)
	}
	if tag.RowsAffected() == 1 {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"clicks"},
			[]string{"log", "sequence", "ordinal", "at", "org_key", "link_id", "outcome", "class", "reason", "ruleset", "evidence", "agent_id", "country", "language", "referrer", "visitor"},
			pgx.CopyFromSlice(len(clicks), func(i int) ([]any, error) {
				c := clicks[i]
				evidence := browserEvidence
				if c.head {
					evidence |= click.EvidenceHead
				}
				// What the edge found: it does not know the public list.
				reason := click.Classify(evidence, click.Read([]byte(testAgents[c.agent].text)))
				return []any{l.id, sequence, i, c.at, c.orgKey, c.link, c.outcome.String(), reason.Class().String(), reason.String(), click.Ruleset, int16(evidence),
					agents[c.agent], c.country, c.language, c.referrer, c.visitor}, nil
			})); err != nil {
			w.t.Fatal(err)
		}
		for _, c := range counted {
			if _, err := tx.Exec(ctx, `insert into click_counts (log, sequence, org_key, link_id, outcome, class, quarter, clicks) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
				l.id, sequence, c.orgKey, c.link, c.outcome.String(), c.class.String(), c.quarter, c.clicks); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if !through.IsZero() {
		if _, err := tx.Exec(ctx, `update click_logs set through = $2, published_at = clock_timestamp() where log = $1`, l.id, through); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// someClicks returns n clicks in [from, to) with a bit of everything.
func someClicks(random *rand.Rand, orgKey string, links []uuid.UUID, from, to time.Time, n int) []shippedClick {
	countries, languages, referrers := []*string{nil, ptr("DE"), ptr("FR")}, []*string{nil, ptr("de"), ptr("haw")}, []*string{nil, ptr("a.example"), ptr("b.example")}
	outcomes := []click.Outcome{click.Redirect, click.Redirect, click.Handoff, click.Landing, click.Preview, click.Inactive, click.Expired, click.Suspended}
	clicks := make([]shippedClick, n)
	for i := range clicks {
		c := shippedClick{
			orgKey: orgKey, link: links[random.IntN(len(links))], at: from.Add(time.Duration(random.Int64N(int64(to.Sub(from))))).Truncate(time.Millisecond),
			outcome: outcomes[random.IntN(len(outcomes))], agent: random.IntN(len(testAgents)), head: random.IntN(20) == 0,
			country: countries[random.IntN(3)], language: languages[random.IntN(3)], referrer: referrers[random.IntN(3)],
		}
		if random.IntN(10) > 0 {
			c.visitor = ptr(random.Int64N(40))
		}
		clicks[i] = c
	}
	return clicks
}
