package store

import (
	"net/netip"
)

// Actor identifies who makes a change. Every write takes one. UserActor, KeyActor, OperatorActor, ServiceActor and SystemActor build it; every
// write refuses the zero Actor with ErrNoActor, and then changes nothing.
type Actor struct {
	kind                      ActorType
	id, displayKey, requestID string
	address                   netip.Addr
}

// ActorType is the kind of an actor.
type ActorType string

// The kinds of actors in the audit trail. The values are those of the database and of the portal.
const (
	ActorUser     ActorType = "user"
	ActorKey      ActorType = "key"
	ActorOperator ActorType = "operator"
	ActorService  ActorType = "service"
)

// actorSystem is the service on its own account. It is not a value of the database: the trail has no entries of it.
const actorSystem ActorType = "system"

// UserActor is the user of a portal session. Subject is the subject of the session token; it is empty for a token without one. The
// request came from address, which may be the zero one, and is known by requestID.
func UserActor(subject string, address netip.Addr, requestID string) Actor {
	return Actor{kind: ActorUser, id: subject, address: address, requestID: requestID}
}

// KeyActor is the API key that a request was authenticated with. It is the zero Actor for a Credential without a key.
func KeyActor(c Credential, address netip.Addr, requestID string) Actor {
	if c.KeyID == "" {
		return Actor{}
	}
	return Actor{kind: ActorKey, id: c.KeyID, displayKey: c.DisplayKey, address: address, requestID: requestID}
}

// OperatorActor is the operator who runs a command under the login. It is the zero Actor for an empty login.
func OperatorActor(login string) Actor {
	if login == "" {
		return Actor{}
	}
	return Actor{kind: ActorOperator, id: login}
}

// LinkActor is the operator with the login whose sign-in link a person used. The request came from address and is known by requestID. It is the
// zero Actor for an empty login.
func LinkActor(login string, address netip.Addr, requestID string) Actor {
	if login == "" {
		return Actor{}
	}
	return Actor{kind: ActorOperator, id: login, address: address, requestID: requestID}
}

// ServiceActor is a background job that changes what belongs to tenants. It is the zero Actor for an empty job.
func ServiceActor(job string) Actor {
	if job == "" {
		return Actor{}
	}
	return Actor{kind: ActorService, id: job}
}

// SystemActor is a background job that changes only what belongs to the service itself, as the canary does. The audit trail leaves its
// changes out, so it must not change what belongs to a tenant. It is the zero Actor for an empty job.
func SystemActor(job string) Actor {
	if job == "" {
		return Actor{}
	}
	return Actor{kind: actorSystem, id: job}
}

// Type returns the kind of the actor.
func (a Actor) Type() ActorType { return a.kind }

// ID returns the subject of a session token, the id of a key, the login of an operator or the name of a job.
func (a Actor) ID() string { return a.id }

// Address returns where the request came from. It is the zero address for commands of operators and for jobs.
func (a Actor) Address() netip.Addr { return a.address }

// RequestID returns the id of the request. It is empty for commands of operators and for jobs.
func (a Actor) RequestID() string { return a.requestID }

// recorded reports whether changes by the actor are in the audit trail.
func (a Actor) recorded() bool { return a.kind != actorSystem }
