/* Teams: the part of the device interface that is arithmetic on ranks. */
#include "front.h"

static const ncclTeam_t no_team = {0, 0, 0};

/* The interface has no result code: a bad communicator sets the last error and has no team. */
static ncclTeam_t world(ncclComm_t comm) {
  ncclTeam_t team = no_team;
  if (pncclCommCount(comm, &team.nRanks) != ncclSuccess || pncclCommUserRank(comm, &team.rank) != ncclSuccess)
    return no_team;
  team.stride = 1;
  return team;
}

static ncclTeam_t alone(ncclComm_t comm) {
  ncclTeam_t all = world(comm), self = {1, 0, 1};
  return all.nRanks == 0 ? no_team : self;
}

LP_API(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) { return world(comm); }
LP_API(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) { return world(comm); }
LP_API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) { return alone(comm); }
LP_API(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm)) { return alone(comm); }
LP_API(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, ncclCftTeamMode_t mode)) {
  (void)mode;
  return alone(comm);
}

LP_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}

LP_API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank)) {
  return pncclTeamRankToWorld(comm, team, rank) == world(comm).rank ? 0 : -1;
}
