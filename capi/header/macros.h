#define REJOIN_SESSION_OPTIONS_INIT                                                                    \
    {sizeof(rejoin_session_options), 1, NULL, 0, 0, 0, 0, 0, NULL, -1, 0, 0, 0, 0, 0, 0, 0, 0, NULL}
#define REJOIN_SESSION_INFO_INIT {sizeof(rejoin_session_info), 1, 0, 0, 0, 0, 0, 0}
#define REJOIN_COMM_CONFIG_INIT                                                                        \
    {sizeof(rejoin_comm_config), 1, REJOIN_UNDEFINED, REJOIN_UNDEFINED, REJOIN_UNDEFINED, 0, NULL, NULL}
#define REJOIN_JOURNAL_OPTIONS_INIT                                                                     \
    {sizeof(rejoin_journal_options), 1, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, {0}}
#define REJOIN_RECORD_INIT {sizeof(rejoin_record), 1, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_SNAPSHOT_INFO_INIT                                                                       \
    {sizeof(rejoin_snapshot_info), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_RECOVERY_REPORT_INIT                                                                    \
    {sizeof(rejoin_recovery_report), 1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_FAILED_RANK_INIT {sizeof(rejoin_failed_rank), 1, 0, 0, 0, 0, 0, -1, {0}}
#define REJOIN_APPEND_OPTIONS_INIT {sizeof(rejoin_append_options), 1, 0, 0, 0, 0, 0}
#define REJOIN_LANE_INIT {sizeof(rejoin_lane), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_OBSTACLE_INIT {sizeof(rejoin_obstacle), 1, 0, 0, 0, NULL, NULL}
#define REJOIN_READER_INFO_INIT                                                                        \
    {sizeof(rejoin_reader_info), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}
