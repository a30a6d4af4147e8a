package origin

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/edge/internal/matchtoken"
	"deeplink/shared/catalog"
	"deeplink/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	// bound is the timeout of a test's waits.
	bound = 20 * time.Second
	// connections is the number of connections of the redeemer.
	connections = 4
)

// testEnv is a database with one organization that has a link on the shared host, one on a verified and one on a pending domain.
type testEnv struct {
	t                 testing.TB
	ownerURL, edgeURL string
	owner             *pgx.Conn
	redeemer          *Redeemer
}

const (
	sharedLink   = "11111111-0000-7000-8000-000000000001"
	verifiedLink = "11111111-0000-7000-8000-000000000002"
	pendingLink  = "11111111-0000-7000-8000-000000000003"
)

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	database := testkit.NewDatabase(t)
	owner := testkit.Connect(t, database.URL)
	redeemer, err := OpenRedeemer(t.Context(), database.EdgeURL, connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redeemer.Close)
	w := &testEnv{t, database.URL, database.EdgeURL, owner, redeemer}
	w.exec(`insert into organizations (id, org_key, name) values ('00000000-0000-7000-8000-000000000001', 'abcd', 'Test')`)
	for i, link := range []struct {
		id     string
		host   any
		status string
	}{{sharedLink, nil, "verified"}, {verifiedLink, "links.example.com", "verified"}, {pendingLink, "pending.example.com", "pending"}} {
		w.exec(`with d as (insert into domains (id, organization_id, host, status)
		                   values (gen_random_uuid(), '00000000-0000-7000-8000-000000000001', $1, $2) returning id)
		        insert into links (id, organization_id, domain_id, short_code, path)
		        select $3, '00000000-0000-7000-8000-000000000001', id, $4, '/somewhere' from d`, link.host, link.status, link.id, fmt.Sprintf("Code%d", i))
	}
	return w
}

func (w *testEnv) exec(statement string, values ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(context.Background(), statement, values...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *testEnv) spent() (n int) {
	w.t.Helper()
	if err := w.owner.QueryRow(context.Background(), `select count(*) from match_redemptions`).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *testEnv) redeem(token matchtoken.Token, deviceID string) *Redemption {
	w.t.Helper()
	redemption, err := w.redeemer.Redeem(w.t.Context(), token, deviceID, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return redemption
}

// tokenOf returns the content of a token of a link that was minted now.
func tokenOf(link string) matchtoken.Token {
	token := matchtoken.Token{Link: uuid.MustParse(link), ClickedAt: time.Now().Truncate(time.Millisecond)}
	rand.Read(token.Nonce[:])
	return token
}

func TestRedeemAgreesWithTheVerdictOfCatalog(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	now := time.Now().Truncate(time.Millisecond).Add(999 * time.Microsecond)
	milli := now.Truncate(time.Millisecond)
	past, exact, next := milli.Add(-time.Millisecond), milli, milli.Add(time.Millisecond)
	spent := 0
	for _, suspended := range []bool{false, true} {
		for _, active := range []bool{false, true} {
			for _, expiry := range []*time.Time{nil, &past, &exact, &next} {
				w.exec(`update organizations set suspended = $1`, suspended)
				w.exec(`update links set is_active = $1, expiry = $2`, active, expiry)
				for _, link := range []string{sharedLink, verifiedLink, pendingLink} {
					at := int64(catalog.NoExpiry)
					if expiry != nil {
						at = expiry.UnixMilli()
					}
					want := link != pendingLink && catalog.Judge(suspended, active, at, now) == catalog.Resolves
					redemption, err := w.redeemer.Redeem(t.Context(), tokenOf(link), "", now)
					if err != nil {
						t.Fatal(err)
					}
					if (redemption != nil) != want {
						t.Errorf("suspended %v, active %v, expiry %v, link %s at %v: %v, expected a redemption: %v", suspended, active, expiry, link, now, redemption, want)
					}
					if want {
						spent++
					}
					if got := w.spent(); got != spent {
						t.Fatalf("suspended %v, active %v, expiry %v, link %s: %d tokens are spent, expected %d", suspended, active, expiry, link, got, spent)
					}
				}
			}
		}
	}
	if spent != 4 {
		t.Errorf("%d combinations resolve, expected those of an active link without expiry or with a later one", spent)
	}
}

func TestRedemptionHasThePublicFieldsOfTheLink(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.exec(`update links set channel = 'email', utm_source = 's', utm_medium = 'm', utm_campaign = 'c', utm_term = 't', utm_content = 'o',
	        fallback_url = 'https://shop.example.com/', og_title = 'T', og_description = 'D', og_image_url = 'https://cdn.example.com/i.png',
	        expiry = '2199-01-02T03:04:05.678Z', params = '{"n": 1.0}' where id = $1`, verifiedLink)
	before := time.Now()
	got := w.redeem(tokenOf(verifiedLink), "")
	if got == nil {
		t.Fatal("not redeemed")
	}
	want := &Redemption{OrgKey: "abcd", Host: "links.example.com", MatchedAt: got.MatchedAt, Link: catalog.Link{
		ID: verifiedLink, ShortCode: "Code1", Path: "/somewhere", Channel: new("email"), UTMSource: new("s"), UTMMedium: new("m"),
		UTMCampaign: new("c"), UTMTerm: new("t"), UTMContent: new("o"), FallbackURL: new("https://shop.example.com/"),
		OG:     &catalog.OpenGraph{Title: new("T"), Description: new("D"), ImageURL: new("https://cdn.example.com/i.png")},
		Expiry: &catalog.Time{Time: time.Date(2199, 1, 2, 3, 4, 5, 678e6, time.UTC)}, Params: []byte(`{"n": 1.0}`),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
	if got.MatchedAt.Before(before.Add(-time.Second)) || got.MatchedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("matched at %v, expected now", got.MatchedAt)
	}
	bare := w.redeem(tokenOf(sharedLink), "")
	if diff := cmp.Diff(&Redemption{OrgKey: "abcd", MatchedAt: bare.MatchedAt, Link: catalog.Link{ID: sharedLink, ShortCode: "Code0", Path: "/somewhere"}}, bare); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}

// Postgres also checks the age: redemptions are purged by its clock.
func TestAgeOfATokenIsCheckedByTheClockOfPostgres(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	const slack = 10 * time.Second // the time until the statement runs
	for age, good := range map[time.Duration]bool{
		0: true, matchtoken.Lifetime - slack: true, matchtoken.Lifetime: false, matchtoken.Lifetime + time.Hour: false,
		slack - matchtoken.Skew: true, -matchtoken.Skew - slack: false, -matchtoken.Lifetime: false,
	} {
		token := tokenOf(sharedLink)
		token.ClickedAt = token.ClickedAt.Add(-age)
		if redemption := w.redeem(token, ""); (redemption != nil) != good {
			t.Errorf("%v old: %v, expected a redemption: %v", age, redemption, good)
		}
	}
}

func TestSameDeviceGetsTheSameRedemptionForAMinute(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for _, test := range []struct {
		first, second string
		after         time.Duration
		again         bool
	}{
		{"a", "a", 0, true},
		{"a", "a", retryWindow - 10*time.Second, true},
		{"a", "a", retryWindow + time.Millisecond, false}, // the column rounds to milliseconds, also up
		{"a", "b", 0, false},
		{"a", "A", 0, false},
		{"a", "", 0, false},
		{"", "a", 0, false},
		{"", "", 0, false},
	} {
		token := tokenOf(sharedLink)
		first := w.redeem(token, test.first)
		if first == nil {
			t.Fatalf("%+v: not redeemed", test)
		}
		w.exec(`update match_redemptions set matched_at = matched_at - $1::interval where nonce = $2`, test.after, token.Nonce[:])
		first.MatchedAt = first.MatchedAt.Add(-test.after)
		second := w.redeem(token, test.second)
		if (second != nil) != test.again {
			t.Errorf("%+v: the second is %v", test, second)
		} else if diff := cmp.Diff(first, second); test.again && diff != "" {
			t.Errorf("%+v: the second differs (-first +second):\n%s", test, diff)
		}
	}
	token := tokenOf(sharedLink)
	w.redeem(token, "a")
	w.exec(`update links set is_active = false`)
	if again := w.redeem(token, "a"); again != nil {
		t.Errorf("the link was deactivated, and the device still gets the match: %v", again)
	}
}

func TestOneOfManyConcurrentRedemptionsWins(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for _, test := range []struct {
		name   string
		device func(int) string
		wins   int64
	}{
		{"nameless devices", func(int) string { return "" }, 1},
		{"as many devices", func(i int) string { return fmt.Sprint(i) }, 1},
		{"one device", func(int) string { return "a" }, 50},
	} {
		token := tokenOf(sharedLink)
		var wins atomic.Int64
		var moments sync.Map
		var racing sync.WaitGroup
		for i := range 50 {
			racing.Go(func() {
				redemption, err := w.redeemer.Redeem(t.Context(), token, test.device(i), time.Now())
				if err != nil {
					t.Error(err)
				} else if redemption != nil {
					wins.Add(1)
					moments.Store(redemption.MatchedAt.UnixMilli(), true)
				}
			})
		}
		racing.Wait()
		times := 0
		moments.Range(func(any, any) bool { times++; return true })
		if wins.Load() != test.wins || times != 1 {
			t.Errorf("%s: %d redemptions at %d times, expected %d at one", test.name, wins.Load(), times, test.wins)
		}
	}
}

// A second redemption whose snapshot does not contain the first one's row, because that was not committed yet, waits for its commit and
// then knows its device.
func TestRedemptionWaitsForOneThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	for device, again := range map[string]bool{"a": true, "b": false} {
		token := tokenOf(sharedLink)
		first, err := w.owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := first.Exec(t.Context(), `insert into match_redemptions (nonce, link_id, device_id) values ($1, $2, 'a')`, token.Nonce[:], sharedLink); err != nil {
			t.Fatal(err)
		}
		answered := make(chan *Redemption, 1)
		go func() {
			redemption, err := w.redeemer.Redeem(t.Context(), token, device, time.Now())
			if err != nil {
				t.Error(err)
			}
			answered <- redemption
		}()
		ends := time.Now().Add(bound)
		for waiting := false; !waiting; time.Sleep(time.Millisecond) {
			if time.Now().After(ends) {
				t.Fatal("the second redemption does not wait")
			}
			err := first.QueryRow(t.Context(), `select exists (select from pg_locks where not granted and locktype = 'transactionid' and
				transactionid = pg_current_xact_id()::xid)`).Scan(&waiting)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case redemption := <-answered:
				t.Fatalf("device %s: returned %v before the first was committed", device, redemption)
			default:
			}
		}
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if redemption := <-answered; (redemption != nil) != again {
			t.Errorf("device %s after device a: %v, expected a redemption: %v", device, redemption, again)
		}
	}
}

// A statement is prepared on each connection, and fails once on each of them after a migration.
func TestRedeemWorksAfterAMigration(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.redeemOnEachConnection()
	w.exec(`alter table links alter column path type varchar(4000)`)
	w.redeemOnEachConnection()
}

// redeemOnEachConnection redeems a token on each of the redeemer's connections; a lock makes the redemptions concurrent.
func (w *testEnv) redeemOnEachConnection() {
	w.t.Helper()
	lock, err := w.owner.Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := lock.Exec(w.t.Context(), `lock table match_redemptions in access exclusive mode`); err != nil {
		w.t.Fatal(err)
	}
	var redeeming sync.WaitGroup
	for range connections {
		redeeming.Go(func() {
			if redemption, err := w.redeemer.Redeem(w.t.Context(), tokenOf(sharedLink), "", time.Now()); redemption == nil || err != nil {
				w.t.Errorf("not redeemed: %v", err)
			}
		})
	}
	for waiting, ends := 0, time.Now().Add(bound); waiting < connections; time.Sleep(time.Millisecond) {
		if time.Now().After(ends) {
			w.t.Fatalf("%d redemptions wait for the lock, expected %d", waiting, connections)
		}
		if err := lock.QueryRow(w.t.Context(), `select count(*) from pg_locks l join pg_database d on d.oid = l.database
			where not granted and d.datname = current_database()`).Scan(&waiting); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := lock.Rollback(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	redeeming.Wait()
}
