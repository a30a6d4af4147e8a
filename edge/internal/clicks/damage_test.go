package clicks

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/valyala/fasthttp"

	"deeplink/shared/click"
	"deeplink/shared/testkit"
)

// written is what a process recorded before it was killed: clicks 1 to n, each of a link of its own.
type written struct {
	log     string
	clicks  int
	counted int // of them in the counters
}

// writeAndCrash records clicks, some of which are shipped, some synced and some neither. The log has two segments, and counters that are in use.
func writeAndCrash(t *testing.T, database *testkit.Database, dir string) (w written) {
	t.Helper()
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	w.log = r.active.Log.String()
	v := visit(1)
	send := func(n int) {
		if err := r.prepare(); err != nil {
			t.Fatal(err)
		}
		within(t, request("GET", chrome, "Referer: https://news.example.com/"), func(ctx *fasthttp.RequestCtx) {
			for range n {
				w.clicks++
				v.Link[13], v.Link[14], v.Link[15] = byte(w.clicks>>16), byte(w.clicks>>8), byte(w.clicks)
				answer(r, ctx, v)
			}
		})
	}
	send(100)
	round(t, r)
	send(16_400)
	if n := len(r.active.segments); n != 2 {
		t.Fatalf("%d segments, expected 2", n)
	}
	for turn := range 2 {
		if err := r.sync(turn, false); err != nil {
			t.Fatal(err)
		}
		send(150)
	}
	var c record
	c.outcome, c.reason, c.orgKey = click.Expired, click.Browser, [4]byte([]byte("acme"))
	for range 70 {
		w.clicks++
		w.counted++
		c.link = [16]byte{13: byte(w.clicks >> 16), 14: byte(w.clicks >> 8), 15: byte(w.clicks), 6: 0x70}
		r.count(&c, r.clock.at(r.clock.start))
	}
	crash(t, r)
	return w
}

// damage is what happens to one file of a log.
type damage struct {
	name string
	do   func(path string, size int64, random *rand.Rand) error
}

var damages = []damage{
	{"nothing", func(string, int64, *rand.Rand) error { return nil }},
	{"truncated at a page", func(path string, size int64, random *rand.Rand) error {
		return os.Truncate(path, random.Int64N(size/pageSize+1)*pageSize)
	}},
	{"truncated at any byte", func(path string, size int64, random *rand.Rand) error { return os.Truncate(path, random.Int64N(size)) }},
	{"truncated among the clicks", func(path string, size int64, random *rand.Rand) error {
		return os.Truncate(path, min(size-1, 4000+random.Int64N(30_000)))
	}},
	{"without its first page", func(path string, size int64, _ *rand.Rand) error { return zero(path, 0, min(size, pageSize)) }},
	{"without a page among the clicks", func(path string, size int64, random *rand.Rand) error {
		at := random.Int64N(min(size, 40_000)) / pageSize * pageSize
		return zero(path, at, min(size-at, pageSize))
	}},
	{"empty", func(path string, _ int64, _ *rand.Rand) error { return os.Truncate(path, 0) }},
	{"deleted", func(path string, _ int64, _ *rand.Rand) error { return os.Remove(path) }},
}

func zero(path string, at, n int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(make([]byte, n), at)
	return errors.Join(err, file.Close())
}

// TestDamagedLogCountsIntactClicksOnceAndReportsTheRest damages each file of the log of a killed process in each way.
func TestDamagedLogCountsIntactClicksOnceAndReportsTheRest(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, of := range []string{"segment-00000", "segment-00001", "*/journal", "*/counters", "*/tail", "*/log.json"} {
		t.Run(strings.TrimPrefix(of, "*/"), func(t *testing.T) {
			database := testkit.NewDatabase(t)
			owner := testkit.Connect(t, database.URL)
			for _, d := range damages {
				run(t, owner, `truncate clicks, click_counts, click_batches, click_logs`)
				dir := t.TempDir()
				w := writeAndCrash(t, database, dir)
				run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
				paths, _ := filepath.Glob(filepath.Join(dir, of))
				if len(paths) != 1 {
					t.Fatalf("%s: %v", of, paths)
				}
				info, err := os.Stat(paths[0])
				if err == nil {
					err = d.do(paths[0], info.Size(), random)
				}
				if err != nil {
					t.Fatal(err)
				}
				checkDamaged(t, database, owner, dir, of, d.name, w)
			}
		})
	}
}

func checkDamaged(t *testing.T, database *testkit.Database, owner *pgx.Conn, dir, of, how string, w written) {
	t.Helper()
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	if !r.durable.Load() {
		t.Errorf("%s %s: the directory is not used", of, how)
	}
	round(t, r)
	crash(t, r)
	found := value[int](t, owner, counted)
	if n := value[int](t, owner, `select count(*) from (select link_id from clicks union all select link_id from click_counts where clicks = 1) c
		group by link_id order by 1 desc limit 1`); n != 1 {
		t.Errorf("%s %s: a click is counted %d times", of, how, n)
	}
	if n := value[int](t, owner, `select count(*) from click_counts where clicks <> 1`); n != 0 {
		t.Errorf("%s %s: %d counters are wrong", of, how, n)
	}
	lost := value[string](t, owner, `select coalesce(string_agg(concat_ws(' ', slot, durable, ended_at > through, through <= (select max(at) from clicks), ended_at < now() + interval '1 minute'), ','), '')
		from click_logs where state = 'lost'`)
	switch {
	case how == "nothing" && (found != w.clicks || lost != ""):
		t.Errorf("%s: %d of %d clicks, lost: %q; expected all, and nothing lost", of, found, w.clicks, lost)
	case found < w.clicks && lost == "":
		t.Errorf("%s %s: %d of %d clicks, and no interval is reported as lost", of, how, found, w.clicks)
	case lost != "" && !strings.HasPrefix(lost, "a t t t t"):
		t.Errorf("%s %s: lost: %q", of, how, lost)
	case found > w.clicks:
		t.Errorf("%s %s: %d of %d clicks", of, how, found, w.clicks)
	}
	// Only what the damage has taken may be missing.
	if strings.HasPrefix(of, "*/") && of != "*/counters" && found != w.clicks {
		t.Errorf("%s %s: %d of %d clicks, although all records are intact", of, how, found, w.clicks)
	}
	if of == "*/counters" && found < w.clicks-w.counted {
		t.Errorf("%s %s: %d of %d clicks, although only %d were in the counters", of, how, found, w.clicks, w.counted)
	}
	if how == "without its first page" && strings.HasPrefix(of, "segment") && found != w.clicks {
		t.Errorf("%s %s: %d of %d clicks, although the segment has a copy of its header", of, how, found, w.clicks)
	}
	if how == "without a page among the clicks" && strings.HasPrefix(of, "segment") && found < w.clicks-2*pageSize/slotSize {
		t.Errorf("%s %s: %d of %d clicks, expected all but those of one page", of, how, found, w.clicks)
	}
	if state := value[string](t, owner, `select state::text from click_logs where log = $1`, w.log); state != "closed" {
		t.Errorf("%s %s: the log is %s", of, how, state)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// TestTruncatedJournalIsCompletedWithoutCountingTwice has entries of batches that were not sent.
func TestTruncatedJournalIsCompletedWithoutCountingTwice(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	for missing := range 4 {
		for committed := range 4 {
			run(t, owner, `truncate clicks, click_counts, click_batches, click_logs`)
			dir := t.TempDir()
			r := open(t, options(t, database, dir))
			r.Register(t.Context())
			for i := range 4 {
				within(t, request("GET", chrome), func(ctx *fasthttp.RequestCtx) {
					for n := range 10 {
						v := visit(byte(n))
						v.Link[14] = byte(i)
						answer(r, ctx, v)
					}
				})
				if err := r.ship.cut(r.active, r.ship.boundary(), r.clock.raise(r.clock.at(r.clock.start)+int64(i))); err != nil {
					t.Fatal(err)
				}
			}
			for _, b := range slices.Clone(r.active.entries[:committed]) {
				if _, err := r.ship.send(context.Background(), r.active, b, false); err != nil {
					t.Fatal(err)
				}
			}
			path := r.active.journal.Name()
			crash(t, r)
			run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
			if err := os.Truncate(path, int64(4-missing)*boundarySize); err != nil {
				t.Fatal(err)
			}
			next := open(t, options(t, database, dir))
			next.Register(t.Context())
			round(t, next)
			crash(t, next)
			found := value[int](t, owner, counted)
			lost := value[bool](t, owner, `select exists (select from click_logs where state = 'lost')`)
			// It is not known where the last committed batch ends if its entry is missing, and one after it.
			unknown := committed > 4-missing && committed < 3
			if !unknown && (found != 40 || lost) || unknown && !lost {
				t.Errorf("%d entries are missing, %d batches are committed: %d clicks, lost %v", missing, committed, found, lost)
			}
			if n := value[int](t, owner, `select coalesce(max(n), 0) from (select count(*) n from clicks group by link_id) c`); n != 1 {
				t.Errorf("%d entries are missing, %d batches are committed: a click is counted %d times", missing, committed, n)
			}
		}
	}
}

func TestLossOfPowerIsReported(t *testing.T) {
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	dir := t.TempDir()
	w := writeAndCrash(t, database, dir)
	run(t, owner, `update click_logs set published_at = published_at - interval '11 seconds'`)
	files, _ := filepath.Glob(filepath.Join(dir, "*", logFile))
	text, err := os.ReadFile(files[0])
	if err == nil {
		err = os.WriteFile(files[0], []byte(strings.ReplaceAll(string(text), bootID(), "another boot")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, options(t, database, dir))
	r.Register(t.Context())
	round(t, r)
	if n := value[int](t, owner, counted); n != w.clicks {
		t.Errorf("%d of %d clicks, although no page is missing", n, w.clicks)
	}
	if got := value[string](t, owner, `select concat_ws(' ', slot, durable, extract(epoch from ended_at - through) * 1000 >= $1) from click_logs where state = 'lost'`,
		options(t, database, "").Sync.Milliseconds()); got != "a t t" {
		t.Errorf("lost: %s", got)
	}
	if n := r.counts.lost.Load(); n != 1 {
		t.Errorf("lost_total is %d, expected 1", n)
	}
}
