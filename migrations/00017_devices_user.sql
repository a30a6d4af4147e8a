-- +goose NO TRANSACTION
-- +goose Up
-- The devices of a user. The index is built while devices are written; an interrupted build leaves an invalid index, which the next attempt
-- drops. identities.user_id is compared in "C", so an index with another collation would not be used.
drop index concurrently if exists devices_user;
create index concurrently devices_user on devices (organization_id, user_id collate "C") where user_id is not null;
comment on index devices_user is 'Finds the devices of a user, to delete them, and whether an identity is still in use.';
