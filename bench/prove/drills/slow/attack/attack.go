package attack

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// Attack is a mix of malicious clients: some are slow, some guess codes. The program attackers runs it.
type Attack struct {
	Edge    string        `arg:"" help:"Address of the edge: host and port."`
	Link    string        `arg:"" help:"Path of a link. Guesses replace the part after its last slash."`
	Slow    int           `default:"5000" help:"Number of slow connections."`
	Arrival time.Duration `default:"6s" help:"Time within which they connect."`
	Rate    float64       `default:"5000" help:"Guesses per second, each a different code."`
	Span    time.Duration `default:"10s" help:"How long to guess, once all slow clients have connected."`
}

// Arrived is the first of two lines of JSON that an attack writes: all slow clients are connected, and the guessing begins.
type Arrived struct {
	Open int64 `json:"open"` // slow connections
}

// Left is the second line, written at the end.
type Left struct {
	Cut     int64        `json:"cut"` // slow connections that the edge closed
	Guesses result.Round `json:"guesses"`
}

// guessers is the number of connections that guess codes.
const guessers = 64

// Run attacks until the duration is over or ctx ends.
func (a Attack) Run(ctx context.Context, out io.Writer) error {
	target, err := load.ParseTarget("http://" + a.Edge)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	staying, leave := context.WithCancel(ctx)
	crowd := Hold(staying, a.Edge, a.Slow, a.Arrival)
	defer crowd.Wait()
	defer leave()
	for crowd.Clients.Load() < int64(a.Slow) && ctx.Err() == nil {
		sleep(ctx, 100*time.Millisecond)
	}
	if err := lines.Encode(Arrived{crowd.Open.Load()}); err != nil {
		return err
	}
	guesses, err := load.Run(ctx, load.Options{
		Targets: []load.Target{target}, Connections: guessers, Rate: a.Rate, Warmup: time.Second, Duration: a.Span,
		Source: load.Request{Paths: load.WithUnknown(load.NewKeys(a.Link).InTurn(), 1), Clients: 1 << 20}.Source(),
	})
	if err != nil {
		return err
	}
	return lines.Encode(Left{crowd.Cut.Load(), guesses})
}
