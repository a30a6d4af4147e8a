-- +goose Up
-- Edges of the previous version leave the column null, and continue to work.
alter table edges add column address text
    check (length(address) <= 259 and address ~ '^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}$');
comment on column edges.address is 'Host and port at which control reaches this edge itself, past any balancer, for its canary. Null: not known.';
