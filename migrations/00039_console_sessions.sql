-- +goose Up
-- Sign-in to the console. No table has a token or a secret that is not hashed or encrypted.
create table console_sessions (
    id                uuid primary key,
    cookie_hash       bytea not null unique check (octet_length(cookie_hash) = 32),
    organization_id   uuid references organizations (id) on delete cascade,
    via               text not null check (via in ('provider', 'link')),
    issuer            text,
    subject           text,
    name              text,
    email             text,
    role              text not null check (role in ('', 'member', 'admin', 'owner')),
    operator          text,
    memberships       jsonb not null,
    nonce_hash        bytea,
    token_lifetime    interval,
    token_ends_at     timestamptz,
    refresh_token     bytea,
    id_token          bytea,
    lease_id          uuid,
    lease_until       timestamptz,
    renewal_uncertain boolean not null default false,
    renewal_before    boolean not null default false,
    renewal_refused   boolean not null default false,
    renewal_failed_at timestamptz,
    created_at        timestamptz not null,
    last_seen_at      timestamptz not null,
    ends_at           timestamptz not null,
    ip                inet,
    user_agent        text not null
);
create index console_sessions_person on console_sessions (issuer, subject);
create index console_sessions_organization on console_sessions (organization_id, created_at);
create index console_sessions_ends_at on console_sessions (ends_at);
comment on table console_sessions is 'People who are signed in to the console. Every call with the session cookie reads its row, so a deleted row ends a session on all controls at once.';
comment on column console_sessions.id is 'Public: it is in lists and in the audit trail. Choosing another organization gives the session a new one.';
comment on column console_sessions.cookie_hash is 'SHA-256 of the value of the session cookie.';
comment on column console_sessions.organization_id is 'Null: the person has several organizations and has chosen none yet.';
comment on column console_sessions.operator is 'Who created the sign-in link; null for sessions of the identity provider.';
comment on column console_sessions.memberships is 'Organizations and roles in the last valid token, by the ids of the identity provider.';
comment on column console_sessions.nonce_hash is 'SHA-256 of the nonce of the sign-in, which a renewed ID token may repeat.';
comment on column console_sessions.token_ends_at is 'Expiry of the last valid token; null for a sign-in link.';
comment on column console_sessions.refresh_token is 'Encrypted. Null: the session ends with its token.';
comment on column console_sessions.id_token is 'Encrypted. Sign-out sends it to the identity provider.';
comment on column console_sessions.lease_id is 'The renewal that is under way; no other one starts before lease_until.';
comment on column console_sessions.renewal_uncertain is 'A renewal was sent and no complete response was read, so the identity provider may have replaced the refresh token. True while a renewal is under way.';
comment on column console_sessions.renewal_before is 'renewal_uncertain when the last renewal started.';
comment on column console_sessions.renewal_refused is 'The identity provider refused the refresh token after an uncertain renewal: the person has to sign in again.';
comment on column console_sessions.renewal_failed_at is 'When the last renewal failed without a decision; null after a success.';
comment on column console_sessions.last_seen_at is 'The last call, written about once a minute.';

create table console_sign_ins (
    state_hash   bytea primary key check (octet_length(state_hash) = 32),
    browser_hash bytea not null check (octet_length(browser_hash) = 32),
    secrets      bytea not null,
    created_at   timestamptz not null
);
create index console_sign_ins_created_at on console_sign_ins (created_at);
comment on table console_sign_ins is 'Sign-ins that were sent to the identity provider and have not come back. The callback deletes the row, so each is used once.';
comment on column console_sign_ins.state_hash is 'SHA-256 of the state.';
comment on column console_sign_ins.browser_hash is 'SHA-256 of the cookie that binds the sign-in to a browser.';
comment on column console_sign_ins.secrets is 'Encrypted: nonce, PKCE verifier, and where the sign-in leads.';

create table console_links (
    id              uuid primary key,
    token_hash      bytea not null unique check (octet_length(token_hash) = 32),
    organization_id uuid not null references organizations (id) on delete cascade,
    role            text not null check (role in ('member', 'admin', 'owner')),
    operator        text not null,
    created_at      timestamptz not null,
    expires_at      timestamptz not null,
    spent_at        timestamptz
);
create index console_links_organization on console_links (organization_id, created_at);
create index console_links_expires_at on console_links (expires_at);
comment on table console_links is 'One-time links with which operators let a person sign in.';
comment on column console_links.token_hash is 'SHA-256 of the token in the fragment of the link.';

grant select, insert, update, delete on console_sessions, console_sign_ins, console_links to deeplink_control;
