package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"deeplink/shared/devservers"
)

// addresses are where control and the edges will listen. A listener holds each of them until its program starts, so that no
// other program takes the port while control and edge are built and PostgreSQL starts.
type addresses struct {
	control reservation
	edges   [2]reservation
}

// reservation is an address, host and port, and the listener that holds it.
type reservation struct {
	addr string
	held net.Listener
}

// release lets a program listen on the address. It may be called more than once.
func (r *reservation) release() {
	if r.held != nil {
		r.held.Close()
		r.held = nil
	}
}

func (a *addresses) release() {
	a.control.release()
	for i := range a.edges {
		a.edges[i].release()
	}
}

// reserveAddresses uses EDGE_ADDR and CONTROL_ADDR if they are set, and otherwise the usual ports, or free ones if those are in
// use. The second edge gets the next free port after the first.
func reserveAddresses() (_ *addresses, err error) {
	a := new(addresses)
	defer func() {
		if err != nil {
			a.release()
		}
	}()
	if a.edges[0], err = reserveSetting("EDGE_ADDR", "127.0.0.1:8080"); err != nil {
		return nil, err
	}
	if a.control, err = reserveSetting("CONTROL_ADDR", "127.0.0.1:8081"); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(a.edges[0].addr)
	first, _ := strconv.Atoi(port)
	for next := first + 1; next < first+100 && next < 1<<16; next++ {
		if a.edges[1], err = reserve(net.JoinHostPort(host, strconv.Itoa(next))); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("no free port for the second edge within 100 after %s", a.edges[0].addr)
}

// reserveSetting reserves the address of a setting, with 127.0.0.1 if it names no host and a free port if the port is 0. Without
// the setting it reserves the usual address, or a free port if that is in use.
func reserveSetting(setting, usual string) (reservation, error) {
	value := os.Getenv(setting)
	if value == "" {
		if r, err := reserve(usual); err == nil {
			return r, nil
		}
		return reserveFree()
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return reservation{}, fmt.Errorf("%s: %w", setting, err)
	}
	if port == "0" {
		return reserveFree()
	}
	if host == "" || host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	r, err := reserve(net.JoinHostPort(host, port))
	if err != nil {
		return reservation{}, fmt.Errorf("%s: %w; choose another port, or 0 for a free one", setting, err)
	}
	return r, nil
}

// reserveFree reserves a port below those that the kernel gives to outgoing connections: a program that is restarted must find
// its port free.
func reserveFree() (reservation, error) {
	var failed []error
	for range 5 {
		addr, err := devservers.FreeAddr()
		if err != nil {
			return reservation{}, err
		}
		r, err := reserve(addr)
		if err == nil {
			return r, nil
		}
		failed = append(failed, err)
	}
	return reservation{}, errors.Join(failed...)
}

func reserve(addr string) (reservation, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return reservation{}, err
	}
	return reservation{addr, ln}, nil
}

// inUse reports whether a program listens on an address.
func inUse(addr string) bool {
	r, err := reserve(addr)
	r.release()
	return err != nil
}
