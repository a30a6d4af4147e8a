package scenarios

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// scenario is a kind of load.
type scenario struct {
	clicks bool // needs links to click
	keys   bool // needs server keys
	made   bool // needs links whose ids are known: the created ones
	play   func(l *loading, ctx context.Context, name string) ([]part, error)
}

var scenarios = map[string]scenario{
	"redirect": {clicks: true, play: (*loading).redirect},
	"zipf":     {clicks: true, play: (*loading).zipf},
	"unknown":  {clicks: true, play: (*loading).unknown},
	"pages":    {clicks: true, play: (*loading).pages},
	"data":     {clicks: true, play: (*loading).data},
	"match":    {clicks: true, play: (*loading).match},
	"create":   {keys: true, play: (*loading).create},
	"get":      {keys: true, made: true, play: (*loading).get},
	"list":     {keys: true, made: true, play: (*loading).list},
	"delete":   {keys: true, play: (*loading).deletes},
	"mixed":    {clicks: true, keys: true, made: true, play: (*loading).mixed},
}

// User-Agents of browsers.
const (
	iPhoneAgent  = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1"
	androidAgent = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
)

// click is the request of a browser.
func (l *loading) click(agent string, paths load.Paths) load.Request {
	if l.UserAgent != "" {
		agent = l.UserAgent
	}
	header := []string{
		"User-Agent: " + agent, "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
		"Accept-Language: en-GB,en;q=0.9", "Accept-Encoding: gzip, deflate, br",
	}
	return load.Request{Paths: paths, Header: l.withHeader(header), Clients: l.Clients}
}

// withHeader returns a header with the lines of --header, which replace lines with the same names.
func (l *loading) withHeader(header []string) []string {
	header = slices.DeleteFunc(header, func(line string) bool {
		return slices.ContainsFunc(l.Header, func(own string) bool { return strings.EqualFold(fieldName(own), fieldName(line)) })
	})
	return append(header, l.Header...)
}

func fieldName(line string) string {
	name, _, _ := strings.Cut(line, ":")
	return name
}

// popular is all links to click, the first ones most often.
func (l *loading) popular() load.Paths {
	if l.keys == nil {
		return load.Numbered(l.Prefix, l.Count, l.Skew)
	}
	return l.keys.Skewed(l.Skew)
}

// hot is the most popular link.
func (l *loading) hot() string {
	if l.keys == nil {
		return l.Prefix + "0"
	}
	return string(l.keys.At(0))
}

// options are the options of a round against edges.
func (l *loading) options(source func(int, load.Target) load.Source) load.Options {
	return load.Options{
		Targets: l.edges, Connections: l.Connections, Source: source, Rate: l.Rate, Requests: l.Requests, Warmup: l.Warmup, Duration: l.span(),
		Timeout: l.Timeout, TLS: l.config,
	}
}

// span is the length of a round.
func (l *loading) span() time.Duration {
	switch {
	case l.Duration > 0:
		return l.Duration
	case l.Requests > 0:
		return 365 * 24 * time.Hour // the number of requests ends the round
	}
	return 10 * time.Second
}

// expected returns whether a scenario expects a status.
func (l *loading) expected(name string) func(status int) bool {
	return func(status int) bool {
		if len(l.ExpectStatus) > 0 {
			return slices.Contains(l.ExpectStatus, status)
		}
		return status >= 200 && status < 400 || name == "unknown" && status == http.StatusNotFound
	}
}

// one plays a scenario with one kind of request: one round, or one per stage.
func (l *loading) one(ctx context.Context, name string, options load.Options) (parts []part, err error) {
	options.Expected = l.expected(name)
	if len(l.Stages) == 0 {
		return l.run(ctx, nil, name, options)
	}
	for _, s := range l.Stages {
		options.Rate, options.Duration = s.rate, s.span
		if parts, err = l.run(ctx, parts, fmt.Sprintf("%s at %.0f/s", name, s.rate), options); err != nil || ctx.Err() != nil {
			return parts, err
		}
		options.Warmup = 0 // the previous stage was the warm-up
	}
	return parts, nil
}

// run appends one round of the generator to parts.
func (l *loading) run(ctx context.Context, parts []part, name string, options load.Options) ([]part, error) {
	line := newProgressLine(name, options)
	options.Progress = line.show
	round, err := load.Run(ctx, options)
	line.clear()
	if err != nil {
		return parts, err
	}
	return append(parts, part{name, round}), nil
}

func (l *loading) redirect(ctx context.Context, name string) ([]part, error) {
	request := l.click(load.DesktopAgent, nil)
	request.Path = l.hot()
	return l.one(ctx, name, l.options(request.Source()))
}

func (l *loading) zipf(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.options(l.click(load.DesktopAgent, l.popular()).Source()))
}

func (l *loading) unknown(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.options(l.click(load.DesktopAgent, load.WithUnknown(l.popular(), l.Share)).Source()))
}

func (l *loading) data(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.options(l.click(load.DesktopAgent, load.WithSuffix(l.popular(), "/data")).Source()))
}

func (l *loading) pages(ctx context.Context, name string) ([]part, error) {
	iPhone, android := l.click(iPhoneAgent, l.popular()).Source(), l.click(androidAgent, l.popular()).Source()
	return l.one(ctx, name, l.options(func(connection int, target load.Target) load.Source {
		// Every edge gets requests of both kinds.
		if connection/len(l.edges)%2 == 0 {
			return iPhone(connection, target)
		}
		return android(connection, target)
	}))
}

// match presents tokens, with new ones for each round.
func (l *loading) match(ctx context.Context, name string) ([]part, error) {
	tokens, err := l.collectTokens(ctx)
	if err != nil {
		return nil, err
	}
	request := load.Request{
		Method: "POST", Path: "/match", Header: l.withHeader([]string{"Content-Type: application/json"}), Clients: l.Clients,
		Bodies: tokens.bodies, BodyLength: tokens.bodyLength(),
	}
	return l.one(ctx, name, l.options(request.Source()))
}

// calls returns the options of a round against control. The keys take turns by connection.
func (l *loading) calls(rate float64, request func(*backend) load.Request) load.Options {
	sources := make([]func(int, load.Target) load.Source, len(l.backends))
	for i, b := range l.backends {
		r := request(b)
		r.Header = []string{"Authorization: Bearer " + b.key, "Content-Type: application/json"}
		sources[i] = r.Source()
	}
	options := l.options(func(connection int, target load.Target) load.Source {
		return sources[connection%len(sources)](connection, target)
	})
	options.Targets, options.Rate = []load.Target{l.control}, rate
	return options
}

// asOften returns --rate, or the rate that the limits of the keys allow.
func (l *loading) asOften(perKey float64) float64 {
	if l.Rate > 0 {
		return l.Rate
	}
	return perKey * float64(len(l.backends))
}

func (l *loading) create(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.calls(l.asOften(writesPerKey), func(b *backend) load.Request {
		b.unswept.Store(true)
		return load.Request{Method: "POST", Path: "/links", Body: string(b.newLink())}
	}))
}

func (l *loading) get(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.calls(l.asOften(readsPerKey), func(b *backend) load.Request {
		return load.Request{Paths: b.idPaths().InTurn()}
	}))
}

func (l *loading) list(ctx context.Context, name string) ([]part, error) {
	return l.one(ctx, name, l.calls(l.asOften(readsPerKey), func(*backend) load.Request { return load.Request{Path: "/links?limit=20"} }))
}

// mixed clicks while the created links are edited.
func (l *loading) mixed(ctx context.Context, name string) ([]part, error) {
	edits := l.calls(l.Writes, func(b *backend) load.Request {
		return load.Request{Method: "PATCH", Paths: b.idPaths().InTurn(), Bodies: editBodies, BodyLength: len(editBody) + editDigits + 2}
	})
	edits.Connections = max(len(l.backends), min(16, l.Connections))
	clicks := l.options(l.click(load.DesktopAgent, l.popular()).Source())
	clicks.Expected, edits.Expected = l.expected(name), func(status int) bool { return status == http.StatusOK }
	line := newProgressLine(name, clicks)
	clicks.Progress = line.show
	defer line.clear()

	var clicked, edited result.Round
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { clicked, err = load.Run(ctx, clicks); return err })
	group.Go(func() (err error) { edited, err = load.Run(ctx, edits); return err })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return []part{{name + ": clicks", clicked}, {name + ": edits", edited}}, nil
}

const (
	editBody   = `{"fallbackUrl":"https://example.com/load/`
	editDigits = 10
)

// editBodies appends edits, each with another target.
func editBodies(_ int, random *rand.Rand) func([]byte) []byte {
	return func(to []byte) []byte {
		return fmt.Appendf(to, `%s%0*d"}`, editBody, editDigits, random.Uint32())
	}
}
