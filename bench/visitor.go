package main

import "time"

// visitTimeout bounds one request of a visitor.
const visitTimeout = 5 * time.Second

// visitor is a client that clicks on one link at a time.
type visitor struct{ line }

func newVisitor(addr string) *visitor {
	return &visitor{line{addr: addr, timeout: visitTimeout}}
}

// click asks for a path and returns the status. The answer is in v.response until the next click.
func (v *visitor) click(path string) (status int, err error) {
	if err := v.connect(); err != nil {
		return 0, err
	}
	v.put("", path)
	if err := v.send(); err != nil {
		return 0, err
	}
	if err := v.receive(); err != nil {
		return 0, err
	}
	return v.response.StatusCode(), nil
}
