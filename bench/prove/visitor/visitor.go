package visitor

import "time"

// visitTimeout bounds one request of a visitor.
const visitTimeout = 5 * time.Second

// Visitor is a client that clicks one link at a time.
type Visitor struct{ Line }

// New returns a visitor of the edge on addr. It connects with its first click.
func New(addr string) *Visitor {
	return &Visitor{Line{Addr: addr, Timeout: visitTimeout}}
}

// Click requests a path and returns the status. The response is in v.response until the next click.
func (v *Visitor) Click(path string) (status int, err error) {
	if err := v.Connect(); err != nil {
		return 0, err
	}
	v.Put("", path)
	if err := v.Send(); err != nil {
		return 0, err
	}
	if err := v.Receive(); err != nil {
		return 0, err
	}
	return v.Response.StatusCode(), nil
}
